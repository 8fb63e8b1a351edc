// launch/slurm_place.h: what a process learns from Slurm: `srun weft train` is one task per node
// (docs/design/0020-engines.md).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launch/launcher_place.h"

namespace weft {

struct SlurmPlace {
  std::string job_id;
  int task = 0;  // 0 supervises, the others are agents
  std::vector<std::string> nodes;
  int restart = 0;  // how often Slurm has requeued the job

  // The same in all tasks of a job step, and in no other.
  std::string id;
};

// None where no srun started this process with several tasks or nodes. UserError where variables
// are missing or contradict each other, or where a node has more than one task.
std::optional<SlurmPlace> find_slurm_place(const Environment& get);
std::optional<SlurmPlace> find_slurm_place();  // of this process

// What Slurm calls this machine, which may have another name itself; "" outside of Slurm.
std::string slurm_node_name(const Environment& get);
std::string slurm_node_name();

// How often Slurm has requeued the job that this process is in; 0 outside of Slurm.
int slurm_restarts(const Environment& get);
int slurm_restarts();

}  // namespace weft
