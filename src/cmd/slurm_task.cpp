// cmd/slurm_task.cpp: the tasks of a job step find each other through a file.
#include "cmd/slurm_task.h"

#include <charconv>
#include <chrono>
#include <thread>

#include "base/error.h"
#include "launch/agent.h"
#include "launch/rendezvous_file.h"

namespace weft {
namespace {

constexpr auto kPause = std::chrono::milliseconds(50);

int number(const std::string& text) {
  int value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

}  // namespace

SlurmSupervisor::SlurmSupervisor(const SlurmPlace& place, std::filesystem::path path)
    : launch_(place.id), nodes_(place.nodes), path_(std::move(path)) {}

void SlurmSupervisor::note_listening(const std::string& endpoint,
                                     const std::filesystem::path& secret_file) {
  secret_file_ = std::filesystem::absolute(secret_file).string();
  write_rendezvous(path_, {launch_, endpoint, secret_file_});
}

void SlurmSupervisor::note_end(int exit_code) {
  if (!secret_file_.empty()) return remove_rendezvous(path_, {launch_, "", secret_file_});
  write_rendezvous(path_, {launch_, "", std::to_string(exit_code)});
}

int run_slurm_agent(const SlurmPlace& place, const std::filesystem::path& path, int64_t wait_ms) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(wait_ms);
  while (std::chrono::steady_clock::now() < end) {
    const auto file = read_rendezvous(path);
    if (file && file->launch == place.id) {
      if (file->endpoint.empty()) return number(file->secret);
      AgentOptions options;
      options.join = file->endpoint;
      options.secret_file = file->secret;
      options.host = slurm_node_name();
      return run_agent(options);
    }
    std::this_thread::sleep_for(kPause);
  }
  throw PeerError(
      fmt::format("task {} of job {}: {} did not appear within {} s", place.task, place.job_id,
                  path.string(), wait_ms / 1000),
      "does task 0 run on " + place.nodes.at(0) + ", and do all nodes share the run directory?");
}

}  // namespace weft
