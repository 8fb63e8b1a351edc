// cmd/agent.cpp: weft agent: this node's part of a run on several.
#include "launch/agent.h"

#include <cstdlib>

#include "base/error.h"
#include "cmd/command.h"
#include "comm/call.h"
#include "launch/slurm_place.h"

namespace weft {

RunCommand add_agent(CommandOptions& app) {
  auto w = std::make_shared<AgentOptions>();
  auto file = std::make_shared<std::string>();
  auto wait_s = std::make_shared<int64_t>(60);
  app.add_option("--join", w->join, "HOST:PORT of the run, as `weft train` prints it")->required();
  app.add_option("--secret-file", *file, "the run's secret, a file of mode 600")->required();
  app.add_option("--wait", *wait_s,
                 "seconds to wait for the run, also where it is lost; default: 60")
      ->check(at_least(1, 7 * 86400), "SECONDS");
  return [w, file, wait_s] {
    w->secret_file = std::filesystem::absolute(*file);
    w->join_ms = 1000 * *wait_s;
    w->describe_call = describe_latest;
    w->is_first = std::getenv(kFirstAgentVariable) != nullptr;
    w->host = slurm_node_name();
    return run_agent(*w);
  };
}

}  // namespace weft
