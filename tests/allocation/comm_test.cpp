// tests/allocation/comm_test.cpp: no collective after the first of its kind allocates.
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "comm/shm/shm.h"
#include "tests/allocation/counter.h"

namespace weft {
namespace {

constexpr int64_t kCount = 100'000;  // of floats: several chunks

void call_all(Comm& comm, float* a, float* b) {
  const int next = 1 - comm.rank();
  for (const int64_t count : {int64_t{1}, kCount / 2}) {
    for (const Dtype dtype : {Dtype::kF32, Dtype::kBf16}) {
      comm.all_reduce(a, count, dtype);
      comm.all_reduce(a, count, dtype, Reduce::kMax);
      comm.reduce_scatter(a, b, count, dtype);
    }
    comm.all_gather(a, b, count * 4);
    comm.all_to_all(a, b, count * 4);
    comm.broadcast(a, count * 4, 1);
    if (comm.rank() == 0) comm.send(a, count * 4, next);
    comm.recv(b, count * 4, next);
    if (comm.rank() == 1) comm.send(a, count * 4, next);
    comm.barrier();
  }
}

TEST(CommAllocation, NoneAfterTheFirstCalls) {
  WorldOptions options;
  options.num_ranks = 2;
  options.spin = true;
  const auto world = ShmWorld::create(options);
  int64_t calls = -1;
  const auto work = [&](int rank) {
    const auto comm = make_shm_comm(world, rank);
    const auto group = comm->split(0, 0);
    std::vector<float> own_a(kCount), own_b(kCount);
    auto* a = static_cast<float*>(world->take_arena(rank, kCount * 4));
    auto* b = static_cast<float*>(world->take_arena(rank, kCount * 4));
    const auto all = [&] {
      call_all(*group, a, b);
      call_all(*comm, own_a.data(), own_b.data());
    };
    all();
    comm->barrier();
    if (rank == 0) testing::start_counting();
    comm->barrier();
    for (int i = 0; i < 3; ++i) all();
    comm->barrier();
    if (rank == 0) calls = testing::stop_counting();
    comm->barrier();  // nobody exits while the other counts
  };
  std::thread other(work, 1);
  work(0);
  other.join();
  EXPECT_EQ(calls, 0);  // under a sanitizer nothing is counted
}

}  // namespace
}  // namespace weft
