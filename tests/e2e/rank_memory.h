// tests/e2e/rank_memory.h: what the ranks of a running job hold in memory, seen from outside.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>

namespace weft::testing {

// A rank's own memory: anonymous pages, and the pages of its own arena. The arenas of all ranks lie
// in one memfd, and a rank maps those of its peers too; of what it has touched there RssShmem
// counts every page, so that a page read by four ranks counts four times. Here a page of an arena
// counts once, for the rank that it belongs to: mappings are told apart by their offset in the
// memfd (rank r's arenas begin at (r + 1) << 44, net/shm_world.cpp). Pages of an arena are never
// given back, so that the last look before the end is the peak.
struct RankMemory {
  int64_t anonymous = 0;
  int64_t arena = 0;
  int64_t files = 0;  // pages of mapped files: the program, its libraries, what is read
  int64_t total() const { return anonymous + arena; }
  int64_t resident() const { return anonymous + arena + files; }
};

// Looks at the children of `supervisor` that are ranks and keeps the largest values seen, by rank.
void watch_ranks(pid_t supervisor, std::map<int, RankMemory>* peaks);

// A job as the machine sees it: every page once. Of a single process, its arena is anonymous.
struct JobMemory {
  std::map<int, RankMemory> ranks;  // peaks; 0 of a process without ranks is itself
  int64_t total = 0;                // peak of all at once: the files of the largest, and the rest
};
void watch_job(pid_t pid, JobMemory* peak);

}  // namespace weft::testing
