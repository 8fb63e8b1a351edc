// cmd/slurm_task.h: weft train as one of the tasks that srun started, one per node.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "launch/slurm_place.h"

namespace weft {

// Of task 0, the supervisor: tells the other tasks where it listens, or that it has ended.
class SlurmSupervisor {
 public:
  // path: of the file (launch/rendezvous_file.h).
  SlurmSupervisor(const SlurmPlace& place, std::filesystem::path path);
  const std::vector<std::string>& nodes() const { return nodes_; }  // of the job step
  void note_listening(const std::string& endpoint, const std::filesystem::path& secret_file);
  // The run is over; tasks that have not joined yet end with this code.
  void note_end(int exit_code);

 private:
  std::string launch_;
  std::vector<std::string> nodes_;
  std::filesystem::path path_;
  std::string secret_file_;  // empty: it never listened
};

// Of the other tasks: waits for the supervisor, then is its agent. The run's exit code; PeerError
// where there is no supervisor within the time.
int run_slurm_agent(const SlurmPlace& place, const std::filesystem::path& path, int64_t wait_ms);

}  // namespace weft
