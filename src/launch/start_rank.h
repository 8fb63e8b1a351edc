// launch/start_rank.h: one rank as a process.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace weft {

struct RankStart {
  int rank = 0, num_ranks = 1, threads = 1;
  int world_fd = -1;
  std::string program;            // to execute
  std::vector<std::string> argv;  // argv[0] is its name
  std::vector<int> cores;         // to stay on; empty: any
  bool pipe_output = false;       // else it keeps our standard output and error
};

struct StartedRank {
  pid_t pid = -1;
  int out = -1, err = -1;  // the reading ends, not blocking; -1 where not piped
};

// The rank dies with the thread that calls this, and is in a process group of its own: a signal
// from the terminal reaches the supervisor alone. It ignores stop signals from its start on: the
// supervisor passes them on through the shared world (ShmWorld::request_stop).
StartedRank start_rank(const RankStart& start);

}  // namespace weft
