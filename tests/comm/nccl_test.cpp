// tests/comm/nccl_test.cpp: what is specific to NCCL: queues, order, failures.
//
// Several ranks are threads with a fake NCCL. One rank also runs over real NCCL, where this machine
// has a GPU.
#include "comm/nccl/nccl.h"

#include <gtest/gtest.h>

#include <bit>
#include <chrono>
#include <cmath>
#include <cstring>
#include <numeric>
#include <thread>

#include "base/error.h"
#include "tests/comm/ranks.h"
#include "tests/comm/tree.h"

namespace weft::testing {
namespace {

using Clock = std::chrono::steady_clock;

// A rank's Comm, without the waiting that the contract test wraps around it.
struct NcclRank {
  explicit NcclRank(Rank& me, FakeNccl* library, bool is_exact)
      : comm(make_nccl_comm(me.comm->split(0, 0), &device, fake_device_kernels(), arena.data,
                            arena.bytes, {is_exact, "lo", 16 << 10, library})) {
    device.set_watch([this](int64_t waited_ms) {
      comm->check_queued(waited_ms, std::max(comm->deadline_ms(), allowed_ms));
    });
  }
  char* data() { return reinterpret_cast<char*>(arena.data); }

  FakeDevice device;
  FakeArena arena{&device, 1 << 20};
  std::unique_ptr<Comm> comm;
  int64_t allowed_ms = 0;  // for queued calls, where longer than the deadline
};

RanksOptions four_ranks() { return small_chunks(BackEnd::kThreads, 4); }

// In fast mode sums are NCCL's: near ours, and not the same bits, which shows that exact mode's are
// not NCCL's.
TEST(Nccl, FastSumsAreNearTheTreeAndNotItsBits) {
  FakeNccl library;
  for (const bool is_exact : {false, true}) {
    std::atomic<int64_t> different{0};
    expect_ranks(four_ranks(), [&](Rank& rank) {
      NcclRank me(rank, &library, is_exact);
      constexpr int64_t kCount = 5000;
      fill(me.data(), Dtype::kF32, 3, me.comm->rank(), 0, kCount);
      me.comm->all_reduce(me.data(), kCount, Dtype::kF32);
      me.device.wait();
      for (int64_t i = 0; i < kCount; ++i) {
        float got, largest = 0;
        std::memcpy(&got, me.data() + i * 4, 4);
        const auto wanted = std::bit_cast<float>(
            static_cast<uint32_t>(reduced_bits(Dtype::kF32, Reduce::kSum, 3, 4, i)));
        for (int r = 0; r < 4; ++r) {
          const auto bits = static_cast<uint32_t>(input_bits(Dtype::kF32, 3, r, i));
          largest = std::max(largest, std::abs(std::bit_cast<float>(bits)));
        }
        if (std::isfinite(wanted)) check(std::abs(got - wanted) <= 4e-7f * largest, "far off");
        different += std::bit_cast<uint32_t>(got) != std::bit_cast<uint32_t>(wanted);
      }
    });
    if (is_exact) {
      EXPECT_EQ(different, 0);
    } else {
      EXPECT_GT(different, 100);
    }
  }
}

// A call returns while a peer's queue is still busy; the result is complete when the queue is done.
TEST(Nccl, ACallIsQueuedInTheQueueInUse) {
  FakeNccl library;
  expect_ranks(four_ranks(), [&](Rank& rank) {
    NcclRank me(rank, &library, true);
    std::atomic<bool> may_go{false};
    me.device.use(Queue::kLane);
    FakeDevice::queue_work(me.device.stream(), [&] {
      while (!may_go) std::this_thread::yield();
    });
    auto* value = reinterpret_cast<float*>(me.data());
    *value = 1.0f + static_cast<float>(me.comm->rank());
    me.comm->all_reduce(value, 1, Dtype::kF32);
    me.device.use(Queue::kMain);
    check(!me.comm->waits_on_host(), "it waits");
    const float before = *value;  // the lane has not started
    check(before == 1.0f + static_cast<float>(me.comm->rank()), "done before it could be");
    may_go = true;
    me.device.wait();
    check(*value == 10.0f, "sum");
  });
}

// All hosts have made the call, so nobody is missing there; one rank's GPU never gets to it.
TEST(Nccl, TheDeadlineAppliesToQueuedCalls) {
  FakeNccl library;
  const auto begun = Clock::now();
  const auto ends = run_ranks(four_ranks(), [&](Rank& rank) {
    NcclRank me(rank, &library, true);
    me.comm->set_deadline_ms(300);
    me.comm->barrier();
    if (me.comm->rank() == 2) {
      FakeDevice::queue_work(me.device.stream(), [&] {
        while (!me.comm->is_aborted()) std::this_thread::yield();
      });
    }
    me.comm->all_reduce(me.data(), 5000, Dtype::kF32);
    me.device.wait();
  });
  EXPECT_LT(Clock::now() - begun, std::chrono::seconds(10));
  for (const std::string& end : ends) {
    EXPECT_NE(end.find("waited 0."), std::string::npos) << end;
    EXPECT_NE(end.find("a fake GPU for queued calls"), std::string::npos) << end;
  }
}

// Computing before a collective is not waiting for a peer.
TEST(Nccl, WorkLongerThanTheDeadlineIsNotAHang) {
  FakeNccl library;
  expect_ranks(four_ranks(), [&](Rank& rank) {
    NcclRank me(rank, &library, true);
    me.allowed_ms = 30'000;
    me.comm->set_deadline_ms(500);
    me.comm->barrier();
    FakeDevice::queue_work(me.device.stream(),
                           [] { std::this_thread::sleep_for(std::chrono::milliseconds(900)); });
    auto* value = reinterpret_cast<float*>(me.data());
    *value = 1;
    me.comm->all_reduce(value, 1, Dtype::kF32);
    me.device.wait();
    check(*value == 4, "sum");
  });
}

TEST(Nccl, AFailedGpuIsNamedOnAllRanks) {
  FakeNccl library;
  const auto ends = run_ranks(four_ranks(), [&](Rank& rank) {
    NcclRank me(rank, &library, false);
    me.comm->barrier();
    if (me.comm->rank() == 2) library.failing_rank = 2;
    try {
      for (;;) {
        me.comm->all_reduce(me.data(), 5000, Dtype::kF32);
        me.device.wait();
      }
    } catch (const PeerError& e) {
      check(e.exit_code() == 75, "exit code");
      throw;
    }
  });
  for (const std::string& end : ends) {
    EXPECT_NE(end.find("NCCL failed in a test on GPU 2"), std::string::npos) << end;
  }
}

TEST(Nccl, OnlyExactModeAllocatesAndFrees) {
  FakeNccl library;
  for (const bool is_exact : {false, true}) {
    FakeDevice device;
    std::vector<std::byte> arena(4096);
    {
      const auto comm = make_nccl_comm(make_solo_comm(), &device, fake_device_kernels(),
                                       arena.data(), 4096, {is_exact, "lo", 1 << 20, &library});
      EXPECT_EQ(device.taken_bytes(), is_exact ? 1 << 20 : 0);
    }
    EXPECT_EQ(device.taken_bytes(), 0);
  }
}

TEST(Nccl, WithoutTheLibraryIsRejected) {
  std::string why;
  if (const NcclLibrary* library = find_nccl(&why)) {
    EXPECT_GE(library->version(), "2.");
    return;
  }
  EXPECT_FALSE(why.empty());
  FakeDevice device;
  std::byte arena[64];
  EXPECT_THROW(make_nccl_comm(make_solo_comm(), &device, fake_device_kernels(), arena, 64, {}),
               UserError);
}

// One rank: with the fake everywhere, over NCCL where there is a GPU.
struct OneRank {
  std::unique_ptr<Device> device;
  NcclLibrary* library;
  const DeviceKernels* kernels;
};

class NcclAlone : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    std::string why;
    if (GetParam() == "fake") {
      r_ = {std::make_unique<FakeDevice>(), &fake_, &fake_device_kernels()};
    } else {
      r_ = {open_cuda_device(0), find_nccl(&why), cuda_kernels()->device};
    }
    arena_ = r_.device->allocate(kBytes);
  }
  void TearDown() override { r_.device->free(arena_, kBytes); }
  std::unique_ptr<Comm> make(bool is_exact) {
    return make_nccl_comm(make_solo_comm(), r_.device.get(), *r_.kernels, arena_, kBytes,
                          {is_exact, "lo", 1 << 20, r_.library});
  }
  void write(const std::vector<float>& values) {
    r_.device->write(arena_, values.data(), static_cast<int64_t>(values.size() * 4));
  }
  std::vector<float> read(int64_t offset, size_t count) {
    std::vector<float> values(count);
    r_.device->read(values.data(), arena_ + offset, static_cast<int64_t>(count * 4));
    return values;
  }

  static constexpr int64_t kBytes = 8 << 20;
  FakeNccl fake_;
  OneRank r_;
  std::byte* arena_ = nullptr;
};

TEST_P(NcclAlone, EveryCallReturnsItsInput) {
  std::vector<float> values(300'000);  // exact sums take several pieces
  std::iota(values.begin(), values.end(), 0.5f);
  const auto count = static_cast<int64_t>(values.size());
  std::byte* out = arena_ + (4 << 20);
  for (const bool is_exact : {false, true}) {
    const auto comm = make(is_exact);
    write(values);
    comm->all_reduce(arena_, count, Dtype::kF32);
    comm->all_reduce(arena_, count, Dtype::kF32, Reduce::kMax);
    comm->broadcast(arena_, count * 4, 0);
    comm->reduce_scatter(arena_, out, count, Dtype::kF32);
    EXPECT_EQ(read(4 << 20, values.size()), values);
    comm->all_gather(arena_, out, 4000);
    comm->all_to_all(arena_, out + 4000, 4000);
    const std::vector<float> first(values.begin(), values.begin() + 1000);
    EXPECT_EQ(read(4 << 20, 1000), first);
    EXPECT_EQ(read((4 << 20) + 4000, 1000), first);
    EXPECT_EQ(read(0, values.size()), values);
    comm->barrier();
    const auto part = comm->split(3, 0);
    part->all_reduce(arena_, 10, Dtype::kBf16);
    part->all_reduce(arena_, 10, Dtype::kF64);
    part->all_reduce(arena_, 10, Dtype::kI64);
    EXPECT_EQ(read(0, values.size()), values);
  }
}

// Both queues in one captured graph, as the executor makes it.
TEST_P(NcclAlone, IsCapturedWithItsLane) {
  for (const bool is_exact : {false, true}) {
    const auto comm = make(is_exact);
    const auto begun = r_.device->make_event(), ended = r_.device->make_event();
    const auto work = [&] {
      begun->set();
      r_.device->use(Queue::kLane);
      begun->hold();
      comm->all_reduce(arena_, 1000, Dtype::kF32);
      comm->all_to_all(arena_, arena_ + 8000, 4000);
      ended->set();
      r_.device->use(Queue::kMain);
      ended->hold();
      r_.device->copy(arena_ + 16000, arena_ + 8000, 4000);
    };
    work();
    const auto captured = r_.device->capture(work);
    for (int round = 1; round < 4; ++round) {
      const std::vector<float> values(1000, static_cast<float>(round));
      r_.device->wait();
      write(values);
      captured->replay();
      EXPECT_EQ(read(16000, 1000), values) << round;
    }
  }
}

std::vector<std::string> devices_with_nccl() {
  std::vector<std::string> names = {"fake"};
  std::string why;
  const bool has_gpu = cuda_kernels() && count_cuda_devices(&why) > 0;
  if (has_gpu && find_nccl(&why)) names.emplace_back("cuda");
  return names;
}
INSTANTIATE_TEST_SUITE_P(Devices, NcclAlone, ::testing::ValuesIn(devices_with_nccl()),
                         [](const auto& p) { return p.param; });

}  // namespace
}  // namespace weft::testing
