// tests/e2e/rank_memory.h: the memory of a running job's ranks, seen from outside.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>

namespace weft::testing {

// A rank's own memory: anonymous pages, and the pages of its own arena. The arenas of all ranks are
// in one memfd, and a rank maps those of its peers too; RssShmem counts every page that it has
// touched there, so that a page read by four ranks counts four times. Here a page of an arena
// counts once, for the rank that it belongs to: mappings are distinguished by their offset in the
// memfd (rank r's arenas begin at (r + 1) << 44, net/shm_world.cpp). Pages of an arena are never
// released, so that the last sample before the end is the peak.
struct RankMemory {
  int64_t anonymous = 0;
  int64_t arena = 0;
  int64_t files = 0;  // pages of mapped files: the program, its libraries, what is read
  int64_t slots = 0;  // pages of its snapshots (net/snapshot_slots.cpp), which plans list besides
  int64_t total() const { return anonymous + arena; }
  int64_t resident() const { return anonymous + arena + files; }
};

// Samples the children of `supervisor` that are ranks and keeps the maximum, by rank.
void watch_ranks(pid_t supervisor, std::map<int, RankMemory>* peaks);

// A job as the machine sees it: every page once. Of a single process, its arena is anonymous.
struct JobMemory {
  std::map<int, RankMemory> ranks;  // peaks; 0 of a process without ranks is itself
  int64_t total = 0;                // peak of all at once: the files of the largest, and the rest
};
void watch_job(pid_t pid, JobMemory* peak);

}  // namespace weft::testing
