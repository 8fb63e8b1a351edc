// tests/base/threads_test.cpp: every task once, on any number of threads; also run under TSan.
#include "base/threads.h"

#include <gtest/gtest.h>

#include <numeric>
#include <stdexcept>
#include <vector>

namespace weft {
namespace {

class Threads : public ::testing::TestWithParam<int> {};

TEST_P(Threads, RunEveryTaskOnce) {
  ThreadPool pool(GetParam());
  EXPECT_EQ(pool.num_threads(), GetParam());
  for (const int64_t num_tasks : {0, 1, 2, 3, 7, 1000}) {
    std::vector<int> runs(static_cast<size_t>(num_tasks));  // a task writes only its own output
    pool.run(num_tasks, [&](int64_t task, int thread) {
      ASSERT_GE(thread, 0);
      ASSERT_LT(thread, GetParam());
      ++runs[static_cast<size_t>(task)];
    });
    EXPECT_EQ(runs, std::vector<int>(static_cast<size_t>(num_tasks), 1));
  }
}

TEST_P(Threads, SeeWritesOfThePreviousRound) {
  ThreadPool pool(GetParam());
  std::vector<int64_t> values(64, 1);
  for (int round = 0; round < 200; ++round) {
    pool.run(64, [&](int64_t task, int) { ++values[static_cast<size_t>(63 - task)]; });
  }
  EXPECT_EQ(std::accumulate(values.begin(), values.end(), int64_t{0}), 64 * 201);
}

TEST_P(Threads, GiveEachThreadItsOwnScratch) {
  ThreadPool pool(GetParam());
  std::vector<int64_t> sums(static_cast<size_t>(GetParam()));
  pool.run(1000, [&](int64_t task, int thread) { sums[static_cast<size_t>(thread)] += task; });
  EXPECT_EQ(std::accumulate(sums.begin(), sums.end(), int64_t{0}), 499500);
}

TEST_P(Threads, ThrowWhereTheyWereCalled) {
  ThreadPool pool(GetParam());
  for (int round = 0; round < 20; ++round) {
    EXPECT_THROW(pool.run(100,
                          [](int64_t task, int) {
                            if (task % 10 == 3) throw std::runtime_error("task");
                          }),
                 std::runtime_error);
    int64_t done[10] = {};
    pool.run(10, [&](int64_t task, int) { done[task] = 1; });  // and it still works
    EXPECT_EQ(std::accumulate(std::begin(done), std::end(done), int64_t{0}), 10);
  }
}

TEST_P(Threads, ComeAndGo) {
  for (int i = 0; i < 50; ++i) ThreadPool pool(GetParam());
  for (int i = 0; i < 50; ++i) {
    ThreadPool pool(GetParam());
    int64_t done[3] = {};
    pool.run(3, [&](int64_t task, int) { done[task] = task; });
    EXPECT_EQ(done[2], 2);
  }
}

INSTANTIATE_TEST_SUITE_P(Counts, Threads, ::testing::Values(1, 2, 3, 8));

}  // namespace
}  // namespace weft
