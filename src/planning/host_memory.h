// planning/host_memory.h: the expected memory of a CPU run's processes besides their arenas.
//
// Private memory belongs to one process. Pages of the program and its libraries are shared: they
// count in each process's RSS, but exist once. Estimates, measured (docs/plan.md has the table): to
// whole MiB.
#pragma once

#include "config/run_config.h"

namespace weft {

struct HostMemory {
  int64_t program = 0;     // private: heap, stacks, data of libraries
  int64_t writer = 0;      // private, only on rank 0: it writes files and draws the curve
  int64_t tokenizer = 0;   // private: its tables, and its files, which are copied to final/
  int64_t batches = 0;     // private: prefetched
  int64_t tables = 0;      // private: the graphs of a deep model, and what is derived from them
  int64_t code = 0;        // shared: pages of the program and its libraries
  int64_t supervisor = 0;  // private memory of the process that starts the ranks; 0: one rank alone

  int64_t private_of(int rank) const {
    return program + tokenizer + batches + tables + (rank == 0 ? writer : 0);
  }
  int64_t of_rank(int rank = 0) const { return private_of(rank) + code; }
  // Of all processes, every page counted once.
  int64_t of_all(int64_t num_ranks) const {
    return num_ranks * private_of(1) + writer + supervisor + code;
  }
};

// The run file's dp and tp count; only the sizes of its tokenizer's files are used. The result has
// no tables: their size follows from the plan.
HostMemory expected_host_memory(const RunConfig& config);
// The tables of a rank whose plans have this many nodes together.
int64_t expected_table_bytes(int64_t num_nodes);

}  // namespace weft
