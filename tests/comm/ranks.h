// tests/comm/ranks.h: a function run as every rank of a group, over any back end.
//
// Ranks are threads, or processes made by fork. A rank that throws does not end the others, unless
// the test says so. Everything has a deadline; processes are reaped by their id.
#pragma once

#include <csignal>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/shm.h"

namespace weft::testing {

enum class BackEnd { kSolo, kThreads, kProcesses };
std::string name_of(BackEnd back_end);

// What a rank has: its end of the group, and memory of two kinds.
struct Rank {
  std::unique_ptr<Comm> comm;
  std::shared_ptr<ShmWorld> world;  // null in solo
  std::vector<std::unique_ptr<char[]>> memory;

  // `bytes` in an arena that peers read directly, or where only this rank reads.
  char* take(int64_t bytes, bool in_arena);
};

struct RanksOptions {
  BackEnd back_end = BackEnd::kThreads;
  int num_ranks = 2;
  WorldOptions world;  // num_ranks is set from above
  // Runs beside the ranks, in the test's own process; pids are empty where ranks are threads.
  std::function<void(ShmWorld& world, const std::vector<pid_t>& pids)> meanwhile;
};

// What each rank came to: "" where it ended well, else what it threw, "signal 9" or "hangs".
std::vector<std::string> run_ranks(const RanksOptions& options,
                                   const std::function<void(Rank&)>& body);

// All ranks ended well.
void expect_ranks(const RanksOptions& options, const std::function<void(Rank&)>& body);

// For use inside a rank, where gtest's own checks would be lost with the process.
void check(bool ok, const std::string& what);
void check(bool ok, const char* what);

}  // namespace weft::testing
