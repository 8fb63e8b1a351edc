// tests/comm/ranks.h: runs a function as every rank of a group, over any backend.
//
// Ranks are threads, or processes made by fork. A rank that throws does not end the others, unless
// the test says so. Everything has a deadline; processes are reaped by their id.
#pragma once

#include <csignal>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/gloo/gloo.h"
#include "comm/shm/shm.h"
#include "net/store.h"
#include "tests/comm/device_ranks.h"

namespace weft::testing {

enum class BackEnd {
  kSolo,
  kThreads,
  kProcesses,
  kGlooThreads,
  kGlooProcesses,
  kIpcThreads,    // fake GPUs that reach each other's memory
  kNcclThreads,   // fake GPUs and a fake NCCL, in exact mode
  kNodesThreads,  // of several nodes: a world for each, of half the ranks, a third ...; and Gloo
};
std::string name_of(BackEnd back_end);
bool is_gloo(BackEnd back_end);
bool is_on_device(BackEnd back_end);
// All backends for more than one rank; Gloo's where the build has it.
std::vector<BackEnd> back_ends_of_many();
std::vector<BackEnd> back_ends_of_the_host();  // those without fake GPUs

// What a rank has: its Comm, and two kinds of memory.
struct Rank {
  std::shared_ptr<ShmWorld> world;     // null in solo; over Gloo only for memory
  int local_rank = 0;                  // in the world
  std::unique_ptr<FakeDevice> device;  // for backends on fake GPUs, with its arena
  std::unique_ptr<FakeArena> arena;
  int64_t arena_used = 0;
  std::unique_ptr<Comm> comm;
  std::vector<std::unique_ptr<char[]>> memory;

  // `bytes` in an arena that peers read directly, or in private memory.
  char* take(int64_t bytes, bool in_arena);
};

struct RanksOptions {
  BackEnd back_end = BackEnd::kThreads;
  int num_ranks = 2;
  WorldOptions world;  // num_ranks is set from above
  // Runs alongside the ranks, in the test's process; pids are empty where ranks are threads.
  // abort(reason) ends their calls from outside.
  using Abort = std::function<void(const std::string& reason)>;
  std::function<void(const Abort& abort, const std::vector<pid_t>& pids)> meanwhile;
};

// With chunks of 4 KiB, so that little data makes many chunks.
RanksOptions small_chunks(BackEnd back_end, int num_ranks);

// How each rank ended: "" for success, else what it threw, "signal 9" or "hangs".
std::vector<std::string> run_ranks(const RanksOptions& options,
                                   const std::function<void(Rank&)>& body);

// All ranks succeeded.
void expect_ranks(const RanksOptions& options, const std::function<void(Rank&)>& body);

// For use inside a rank, where gtest's own checks would be lost with the process.
void check(bool ok, const std::string& what);
void check(bool ok, const char* what);

}  // namespace weft::testing
