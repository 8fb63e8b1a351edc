// cmd/train_nodes.h: weft train on several nodes.
#pragma once

#include <string>
#include <vector>

#include "config/run_config.h"
#include "launch/job.h"
#include "train/trainer.h"

namespace weft {

struct NodesRun {
  const JobOptions& job;  // of one node
  const EventSink& sink;
  const std::string& secret_file;       // "": the run directory's
  bool is_forced;                       // memory does not matter
  std::vector<std::string> node_names;  // where Slurm has started agents; empty: unknown
};

// UserError where the run directory is in use. Of a run in an object store it is the mirror, which
// all nodes must share as any other run directory; only rank 0 talks to the store.
int run_on_nodes(const RunFile& file, const TrainOptions& options, const NodesRun& run);

}  // namespace weft
