// launch/job_status.h: what a supervisor knows about its ranks, for whoever asks.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "net/heartbeat.h"

namespace weft {

struct RankStatus {
  pid_t pid = -1;
  bool is_running = false;
  RankSign sign;
  // Of a rank on another machine, which this one cannot look at.
  std::string host = {};                              // empty: this machine
  int64_t resident_bytes = -1, anonymous_bytes = -1;  // -1: /proc has them
};

struct JobStatus {
  std::string state = "running";  // starting | running | recovering | stopping | failing
  std::string cause;              // of the last recovery, or of the end
  int64_t num_restarts = 0;       // of the budget
  int64_t max_restarts = 0;       // -1: without bound
  int64_t generation = 0;
  // Of an elastic run: "dp=2 on 2 nodes"; empty: the layout does not change.
  std::string layout = {}, source = {};  // source: what this generation went on from; "": the first
  int64_t num_nodes = 1, nodes_asked = 1, num_spares = 0;
  bool is_opened = false;     // the run directory is this job's
  bool is_announced = false;  // likewise, but not opened yet: it waits for nodes
  std::string note = {};      // what it waits for; empty: nothing
  int64_t shared_bytes = 0;   // shared memory of all ranks: arenas and snapshots
  std::vector<RankStatus> ranks;
};

}  // namespace weft
