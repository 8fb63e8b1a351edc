// tests/kernel/emulated_cuda/grid_test.cpp: fibers wait for each other, and faults are detected.
#include "tests/kernel/emulated_cuda/grid.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/error.h"
#include "tests/kernel/emulated_cuda/cuda_runtime.h"

namespace weft::emulated_cuda {
namespace {

constexpr Order kOrders[] = {Order::kForward, Order::kBackward, Order::kMixed};

class EmulatedCuda : public testing::Test {
 public:
  ~EmulatedCuda() override { set_order(Order::kForward); }
};

TEST_F(EmulatedCuda, EveryThreadOfEveryBlockRunsOnce) {
  for (const Order order : kOrders) {
    set_order(order);
    std::vector<int> counts(3 * 2 * 40 * 3);
    run_grid(dim3(3, 2), dim3(40, 3), 0, [&] {
      const unsigned block = blockIdx.y * gridDim.x + blockIdx.x;
      ++counts[(block * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x];
    });
    EXPECT_EQ(counts, std::vector<int>(counts.size(), 1));
  }
}

TEST_F(EmulatedCuda, AThreadSeesWhatOthersWroteBeforeABarrier) {
  for (const Order order : kOrders) {
    set_order(order);
    std::vector<unsigned> got(200);
    run_grid(dim3(2), dim3(100), 400, [&] {
      auto* shared = reinterpret_cast<unsigned*>(dynamic_shared());
      const unsigned i = threadIdx.x;
      for (unsigned round = 0; round < 3; ++round) {
        shared[i] = i + round;
        __syncthreads();
        got[blockIdx.x * 100 + i] = shared[99 - i];
        __syncthreads();
      }
    });
    for (unsigned i = 0; i < 200; ++i) EXPECT_EQ(got[i], 99 - i % 100 + 2);
  }
}

TEST_F(EmulatedCuda, LanesExchangeTheirValues) {
  for (const Order order : kOrders) {
    set_order(order);
    std::vector<double> sums(96), downs(96);
    std::vector<unsigned> ballots(96);
    run_grid(dim3(1), dim3(96), 0, [&] {
      double sum = threadIdx.x;
      for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
      sums[threadIdx.x] = sum;
      downs[threadIdx.x] = __shfl_down_sync(~0u, double{1} * threadIdx.x, 3, 8);
      ballots[threadIdx.x] = __ballot_sync(~0u, threadIdx.x % 2 == 0);
    });
    for (unsigned i = 0; i < 96; ++i) {
      const unsigned warp = i / 32;
      EXPECT_EQ(sums[i], 496.0 + 1024.0 * warp);
      EXPECT_EQ(downs[i], i % 8 < 5 ? i + 3 : i);
      EXPECT_EQ(ballots[i], 0x55555555u);
    }
  }
}

// Two halves of a warp that do different things.
TEST_F(EmulatedCuda, LanesOutsideTheMaskDoNotMatter) {
  std::vector<int> got(32);
  run_grid(dim3(1), dim3(32), 0, [&] {
    const int i = static_cast<int>(threadIdx.x);
    if (i < 16) {
      got[threadIdx.x] = __shfl_sync(0xffffu, i, 5);
      got[threadIdx.x] += __shfl_sync(0xffffu, i, 6);
    } else {
      got[threadIdx.x] = __shfl_sync(0xffff0000u, i, 20);
    }
  });
  for (int i = 0; i < 32; ++i) EXPECT_EQ(got[static_cast<size_t>(i)], i < 16 ? 11 : 20);
}

TEST_F(EmulatedCuda, ABarrierThatSomeMissIsAnError) {
  const auto run = [](void (*body)()) { run_grid(dim3(1), dim3(64), 0, body); };
  const auto some = [] {
    if (threadIdx.x < 60) __syncthreads();
  };
  const auto another = [] {
    if (threadIdx.x < 32) {
      __syncthreads();
    } else {
      __syncthreads();
    }
  };
  const auto lanes = [] {
    if (threadIdx.x % 32 != 7) __syncwarp();
  };
  EXPECT_THROW(run(some), BugError);
  EXPECT_THROW(run(another), BugError);
  EXPECT_THROW(run(lanes), BugError);
  EXPECT_THROW(run_grid(dim3(1), dim3(1025), 0, [] {}), BugError);
  EXPECT_THROW(run_grid(dim3(1), dim3(32), (64 << 10) + 1, [] {}), BugError);
  int count = 0;
  run_grid(dim3(1), dim3(64), 0, [&] { ++count; });  // the next block is unaffected
  EXPECT_EQ(count, 64);
}

TEST_F(EmulatedCuda, CopiesArriveWhenTheirGroupIsWaitedFor) {
  alignas(16) static const unsigned from[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  std::vector<unsigned> seen;
  run_grid(dim3(1), dim3(1), 32, [&] {
    auto* shared = reinterpret_cast<unsigned*>(dynamic_shared());
    const auto see = [&] { seen.insert(seen.end(), {shared[0], shared[7]}); };
    start_copy(shared, from, 16);
    close_group();
    start_copy(shared + 4, from + 4, 16);
    close_group();
    wait_for_groups(2);
    see();
    wait_for_groups(1);
    see();
    wait_for_groups(0);
    see();
  });
  constexpr unsigned kNone = 0x7f7f7f7f;
  EXPECT_EQ(seen, (std::vector<unsigned>{kNone, kNone, 1, kNone, 1, 8}));

  const auto run = [](std::size_t first, std::size_t later) {
    run_grid(dim3(1), dim3(1), 64, [=] {
      start_copy(dynamic_shared() + first, from, 16);
      close_group();
      wait_for_groups(later);
    });
  };
  EXPECT_NO_THROW(run(16, 0));
  EXPECT_THROW(run(4, 0), BugError);   // not a multiple of 16
  EXPECT_THROW(run(16, 1), BugError);  // the thread ends before its copy
}

// Negative control of what the tests of the kernels rely on.
TEST_F(EmulatedCuda, AMissingBarrierShowsInAnotherOrder) {
  const auto neighbours = [](Order order) {
    set_order(order);
    std::vector<unsigned> got(64);
    run_grid(dim3(1), dim3(64), 256, [&] {
      auto* shared = reinterpret_cast<unsigned*>(dynamic_shared());
      shared[threadIdx.x] = threadIdx.x;
      got[threadIdx.x] = shared[threadIdx.x == 0 ? 0 : threadIdx.x - 1];
    });
    return got;
  };
  EXPECT_NE(neighbours(Order::kForward), neighbours(Order::kBackward));
}

}  // namespace
}  // namespace weft::emulated_cuda
