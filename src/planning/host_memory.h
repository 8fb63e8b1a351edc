// planning/host_memory.h: what the processes of a run on the CPU are expected to hold beside their
// arenas.
//
// Private memory is a process's own. The pages of the program's file and of its libraries are
// shared: each process's RSS counts them, the machine holds them once. Estimates, measured
// (docs/plan.md has the table): to whole MiB.
#pragma once

#include "config/run_config.h"

namespace weft {

struct HostMemory {
  int64_t program = 0;     // private: heap, stacks, data of libraries
  int64_t writer = 0;      // private, of rank 0 alone: it writes files and draws the curve
  int64_t tokenizer = 0;   // private: its tables, and its files, which final/ gets a copy of
  int64_t batches = 0;     // private: read ahead
  int64_t code = 0;        // shared: pages of the program and its libraries
  int64_t supervisor = 0;  // private memory of the process that starts the ranks; 0: one rank alone

  int64_t private_of(int rank) const {
    return program + tokenizer + batches + (rank == 0 ? writer : 0);
  }
  int64_t of_rank(int rank = 0) const { return private_of(rank) + code; }
  // Of all processes, every page counted once.
  int64_t of_all(int64_t num_ranks) const {
    return num_ranks * private_of(1) + writer + supervisor + code;
  }
};

// The run file's dp and tp count; its tokenizer's files are looked at, not read.
HostMemory expected_host_memory(const RunConfig& config);

}  // namespace weft
