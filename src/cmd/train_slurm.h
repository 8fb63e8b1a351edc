// cmd/train_slurm.h: weft train --engine slurm.
#pragma once

#include "config/run_config.h"
#include "train/run_dir.h"

namespace weft {

// Inside a job step: this process is one of its tasks, and the engine has nothing left to do.
bool is_slurm_task();

// Inside an allocation (salloc, a script of one's own): becomes srun, which runs this command on
// every node. Else submits the run as a job; waits: until the job has ended, with its exit code.
// UserError where Slurm's commands are absent.
int train_by_slurm(const RunFile& file, const TrainOptions& options, bool waits);

// Where Slurm has requeued this job after it had begun: the run is resumed, whatever the first
// start was asked to discard.
void continue_requeued(const RunConfig& config, TrainOptions* options);

}  // namespace weft
