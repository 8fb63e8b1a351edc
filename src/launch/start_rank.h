// launch/start_rank.h: one rank as a process.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

namespace weft {

struct RankStart {
  int rank = 0, num_ranks = 1, threads = 1;  // among those of all nodes
  int world_fd = -1;
  int slots_fd = -1;                       // -1: none
  int lock_fd = -1;                        // of a LockKeeper; -1: none
  std::string program;                     // to execute
  std::string input = "/dev/null";         // a file, for its standard input
  std::vector<std::string> argv;           // argv[0] is its name
  std::map<std::string, std::string> env;  // added to ours
  std::vector<int> cores;                  // to pin it to; empty: any
  bool pipe_output = false;                // else it keeps our standard output and error
};

struct StartedRank {
  pid_t pid = -1;
  int out = -1, err = -1;  // the read ends, non-blocking; -1 where not piped
};

// The rank dies with the calling thread, and has its own process group: a signal from the terminal
// reaches only the supervisor. It ignores stop signals from the start: the supervisor forwards them
// through the shared world (ShmWorld::request_stop).
StartedRank start_rank(const RankStart& start);

}  // namespace weft
