// cmd/agent.cpp: weft agent: this node's part of a run on several.
#include "launch/agent.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <system_error>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "cmd/command.h"
#include "comm/call.h"
#include "launch/slurm_place.h"
#include "launch/whole_number.h"

namespace weft {
namespace {

// `weft train` writes it when it starts, so an agent may be there first. Whether it serves is for
// the agent to say, also where this process may not look at it.
void wait_for_secret(const std::filesystem::path& file, int64_t seconds) {
  const auto is_there = [&] {
    std::error_code fault;
    const bool is_empty = std::filesystem::file_size(file, fault) == 0;  // it is being written
    return fault ? fault != std::errc::no_such_file_or_directory : !is_empty;
  };
  if (is_there()) return;
  log_info("waiting up to {} s for the secret file {}, which the run's first start writes", seconds,
           file.string());
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  while (!is_there() && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
}

int report_lost(const AgentOptions& options, const std::string& agent) {
  const size_t colon = std::min(agent.rfind(':'), agent.size());
  const auto pid = whole_number(agent.c_str() + std::min(colon + 1, agent.size()));
  require(colon > 0 && pid && *pid > 0,
          "--lost {}: HOST:PID was expected, the name of the agent's host and its process id",
          agent);
  return report_lost_node(options, agent.substr(0, colon), *pid);
}

}  // namespace

RunCommand add_agent(CommandOptions& app) {
  auto w = std::make_shared<AgentOptions>();
  auto file = std::make_shared<std::string>();
  auto wait_s = std::make_shared<int64_t>(60);
  app.add_option("--join", w->join, "HOST:PORT of the run, as `weft train` prints it")->required();
  app.add_option("--secret-file", *file, "the run's secret, a file of mode 600")->required();
  app.add_option("--wait", *wait_s,
                 "seconds to wait for the run, also where it is lost; default: 60")
      ->check(at_least(1, 7 * 86400), "SECONDS");
  auto lost = std::make_shared<std::optional<std::string>>();
  app.add_option("--lost", *lost, "HOST:PID of another agent: report its node as lost, and end");
  return [w, file, wait_s, lost] {
    w->secret_file = std::filesystem::absolute(*file);
    w->join_ms = 1000 * *wait_s;
    w->describe_call = describe_latest;
    w->is_first = std::getenv(kFirstAgentVariable) != nullptr;
    w->host = slurm_node_name();
    if (*lost) return report_lost(*w, **lost);
    wait_for_secret(w->secret_file, *wait_s);
    return run_agent(*w);
  };
}

}  // namespace weft
