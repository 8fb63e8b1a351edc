// tests/comm/contract_test.cpp: what comm.h promises, over every back end, bit by bit.
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <random>
#include <thread>

#include "base/error.h"
#include "tests/comm/ranks.h"
#include "tests/comm/tree.h"

namespace weft::testing {
namespace {

// Chunks of 4 KiB, so that little data makes many chunks.
constexpr int64_t kChunk = 4 << 10;
// Empty, one element, around the small-data limit and the chunk size, odd, many chunks.
constexpr int64_t kCounts[] = {0,   1,    2,    3,    63,   64,   65,  511,
                               512, 1023, 1025, 4095, 4096, 5000, 9001};

struct Case {
  BackEnd back_end;
  int num_ranks;
};

class Contract : public ::testing::TestWithParam<Case> {
 protected:
  RanksOptions options() const {
    RanksOptions o;
    o.back_end = GetParam().back_end;
    o.num_ranks = GetParam().num_ranks;
    o.world.chunk_bytes = is_gloo(o.back_end) ? 4 * kChunk : kChunk;
    return o;
  }
  // Where buffers are. Gloo does not care; on GPUs all ranks' data of a call is in the same kind of
  // memory.
  int num_places() const {
    if (GetParam().back_end == BackEnd::kNodesThreads) return 3;
    if (is_gloo(GetParam().back_end)) return 1;
    return is_on_device(GetParam().back_end) ? 2 : 3;
  }
};

// Whether a buffer is in an arena: on every rank, on none, or on every second one.
bool in_arena(int where, int rank) { return where == 0 || (where == 2 && rank % 2 == 0); }

TEST_P(Contract, AllReduceIsTheTree) {
  expect_ranks(options(), [places = num_places()](Rank& me) {
    Comm& comm = *me.comm;
    for (int where = 0; where < places; ++where) {
      char* data = me.take(9001 * 8, in_arena(where, comm.rank()));
      uint64_t seed = 1;
      for (const int64_t count : kCounts) {
        for (const Dtype dtype : kReduced) {
          for (const Reduce op : {Reduce::kSum, Reduce::kMax}) {
            fill(data, dtype, ++seed, comm.rank(), 0, count);
            comm.all_reduce(data, count, dtype, op);
            const std::string bad = compare_reduced(data, dtype, op, seed, comm.size(), 0, count);
            check(bad.empty(), bad);
          }
        }
      }
    }
  });
}

TEST_P(Contract, ReduceScatterIsAPartOfTheTree) {
  expect_ranks(options(), [places = num_places()](Rank& me) {
    Comm& comm = *me.comm;
    const int n = comm.size(), rank = comm.rank();
    for (int where = 0; where < places; ++where) {
      char* in = me.take(n * 5000 * 8, in_arena(where, rank));
      char* apart = me.take(5000 * 8, where == 0);
      uint64_t seed = 100;
      for (const int64_t count : kCounts) {
        if (count > 5000) continue;
        for (const Dtype dtype : kReduced) {
          for (const bool in_place : {false, true}) {
            fill(in, dtype, ++seed, rank, 0, n * count);
            char* out = in_place ? in + rank * count * dtype_bytes(dtype) : apart;
            comm.reduce_scatter(in, out, count, dtype);
            const std::string bad =
                compare_reduced(out, dtype, Reduce::kSum, seed, n, rank * count, count);
            check(bad.empty(), bad);
          }
        }
      }
    }
  });
}

// A byte that encodes rank, call and position.
char mark(uint64_t seed, int64_t rank, int64_t i) {
  return static_cast<char>((seed * 31 + static_cast<uint64_t>(rank * 101 + i * 7 + i / 251)) &
                           0xff);
}

TEST_P(Contract, AllGatherIsInRankOrder) {
  expect_ranks(options(), [places = num_places()](Rank& me) {
    Comm& comm = *me.comm;
    const int n = comm.size(), rank = comm.rank();
    for (int where = 0; where < places; ++where) {
      char* apart = me.take(9001, in_arena(where, rank));
      char* out = me.take(n * 9001, in_arena(where, rank));
      uint64_t seed = 0;
      for (const int64_t bytes : kCounts) {
        for (const bool in_place : {false, true}) {
          ++seed;
          char* in = in_place ? out + rank * bytes : apart;
          std::fill_n(out, n * bytes, char{0x55});
          for (int64_t i = 0; i < bytes; ++i) in[i] = mark(seed, rank, i);
          comm.all_gather(in, out, bytes);
          for (int64_t i = 0; i < n * bytes; ++i) {
            check(out[i] == mark(seed, i / bytes, i % bytes), "a wrong byte");
          }
        }
      }
    }
  });
}

TEST_P(Contract, AllToAllTransposes) {
  expect_ranks(options(), [places = num_places()](Rank& me) {
    Comm& comm = *me.comm;
    const int n = comm.size(), rank = comm.rank();
    for (int where = 0; where < places; ++where) {
      char* in = me.take(n * 9001, in_arena(where, rank));
      char* out = me.take(n * 9001, false);
      for (const int64_t bytes : kCounts) {
        for (int64_t i = 0; i < n * bytes; ++i) in[i] = mark(3, rank, i);
        std::fill_n(out, n * bytes, char{0x55});
        comm.all_to_all(in, out, bytes);
        for (int64_t i = 0; i < n * bytes; ++i) {
          check(out[i] == mark(3, i / bytes, rank * bytes + i % bytes), "a wrong byte");
        }
      }
    }
  });
}

TEST_P(Contract, BroadcastComesFromTheRoot) {
  expect_ranks(options(), [places = num_places()](Rank& me) {
    Comm& comm = *me.comm;
    for (int where = 0; where < places; ++where) {
      char* data = me.take(9001, in_arena(where, comm.rank()));
      for (const int64_t bytes : kCounts) {
        for (int root = 0; root < comm.size(); ++root) {
          for (int64_t i = 0; i < bytes; ++i) data[i] = mark(5, comm.rank(), i);
          comm.broadcast(data, bytes, root);
          for (int64_t i = 0; i < bytes; ++i) {
            check(data[i] == mark(5, root, i), "a wrong byte");
          }
        }
      }
    }
  });
}

// Round the ring; ranks of even number send first.
TEST_P(Contract, SendAndRecv) {
  if (GetParam().num_ranks < 2) {
    EXPECT_THROW(make_solo_comm()->send(nullptr, 0, 0), BugError);
    return;
  }
  expect_ranks(options(), [places = num_places()](Rank& me) {
    Comm& comm = *me.comm;
    const int n = comm.size(), rank = comm.rank();
    const int next = (rank + 1) % n, last = (rank + n - 1) % n;
    for (int where = 0; where < places; ++where) {
      char* out = me.take(9001, in_arena(where, rank));
      char* in = me.take(9001, in_arena(where, rank));
      for (const int64_t bytes : kCounts) {
        for (int64_t i = 0; i < bytes; ++i) out[i] = mark(7, rank, i);
        std::memset(in, 0x55, 9001);
        if (rank % 2 == 0) comm.send(out, bytes, next);
        comm.recv(in, bytes, last);
        if (rank % 2 == 1) comm.send(out, bytes, next);
        for (int64_t i = 0; i < bytes; ++i) check(in[i] == mark(7, last, i), "byte");
        check(in[bytes] == 0x55 || bytes == 9001, "a byte too many");
      }
      comm.barrier();
    }
  });
}

// A rank outside the group, or the caller itself, is a bug of ours, detected at once.
TEST(Contract, RanksOutsideTheGroupAreRejected) {
  EXPECT_THROW(make_solo_comm()->broadcast(nullptr, 0, 1), BugError);
  EXPECT_THROW(make_solo_comm()->recv(nullptr, 0, 0), BugError);
  for (const BackEnd back_end : {BackEnd::kThreads, BackEnd::kGlooThreads}) {
    if (is_gloo(back_end) && !has_gloo()) continue;
    expect_ranks(small_chunks(back_end, 3), [](Rank& me) {
      Comm& comm = *me.comm;
      char byte = 0;
      const auto is_bug = [](const auto& fn) {
        try {
          fn();
        } catch (const BugError&) {
          return true;
        }
        return false;
      };
      for (const int other : {-1, 3, comm.rank()}) {
        check(is_bug([&] { comm.send(&byte, 1, other); }), "send");
        check(is_bug([&] { comm.recv(&byte, 1, other); }), "recv");
        if (other == comm.rank()) continue;
        check(is_bug([&] { comm.broadcast(&byte, 1, other); }), "broadcast");
      }
      comm.barrier();
    });
  }
}

// Messages of one pair keep their order and do not disturb collectives.
TEST_P(Contract, MessagesBetweenCollectives) {
  expect_ranks(options(), [](Rank& me) {
    Comm& comm = *me.comm;
    for (int64_t round = 0; round < 200; ++round) {
      int64_t sum = round + comm.rank();
      if (comm.size() > 1 && comm.rank() == 0) comm.send(&round, sizeof round, 1);
      comm.all_reduce(&sum, 1, Dtype::kI64);
      const int64_t n = comm.size();
      check(sum == n * round + n * (n - 1) / 2, "sum");
      if (comm.rank() == 1) {
        int64_t got = -1;
        comm.recv(&got, sizeof got, 0);
        check(got == round, "message");
      }
    }
  });
}

// Nobody leaves before the last has arrived, by the machine's clock.
TEST_P(Contract, ABarrierWaitsForAll) {
  expect_ranks(options(), [](Rank& me) {
    Comm& comm = *me.comm;
    const auto now = [] { return std::chrono::steady_clock::now().time_since_epoch().count(); };
    for (int late = 0; late < comm.size(); ++late) {
      if (comm.rank() == late) std::this_thread::sleep_for(std::chrono::milliseconds(10));
      const int64_t came = now();
      comm.barrier();
      const int64_t left = now();
      std::vector<int64_t> all(static_cast<size_t>(comm.size()));
      comm.all_gather(&came, all.data(), sizeof came);
      for (const int64_t other : all) check(left >= other, "left too early");
    }
  });
}

// Calls of random kind and size, the same on every rank, back to back.
TEST_P(Contract, RandomCallsInAnyOrder) {
  expect_ranks(options(), [](Rank& me) {
    Comm& comm = *me.comm;
    const int n = comm.size(), rank = comm.rank();
    constexpr int64_t kMax = 3000;
    char* a = me.take(n * kMax * 8, true);
    char* b = me.take(n * kMax * 8, true);
    char* c = me.take(n * kMax * 8, false);
    std::mt19937 random(17);
    for (uint64_t seed = 1; seed < 150; ++seed) {
      const int64_t count = static_cast<int64_t>(random()) % kMax;
      const Dtype dtype = kReduced[random() % std::size(kReduced)];
      char* data = random() % 3 == 0 ? c : a;
      const int64_t bytes = count * dtype_bytes(dtype);
      switch (random() % 3) {
        case 0: {
          fill(data, dtype, seed, rank, 0, count);
          comm.all_reduce(data, count, dtype);
          const auto bad = compare_reduced(data, dtype, Reduce::kSum, seed, n, 0, count);
          check(bad.empty(), bad);
          break;
        }
        case 1: {
          fill(data, dtype, seed, rank, 0, n * count);
          comm.reduce_scatter(data, b, count, dtype);
          const auto bad = compare_reduced(b, dtype, Reduce::kSum, seed, n, rank * count, count);
          check(bad.empty(), bad);
          break;
        }
        default:
          for (int64_t i = 0; i < bytes; ++i) data[i] = mark(seed, rank, i);
          comm.all_gather(data, b, bytes);
          for (int64_t i = 0; i < n * bytes; ++i) {
            check(b[i] == mark(seed, i / bytes, i % bytes), "byte");
          }
      }
    }
  });
}

TEST_P(Contract, CountsCallsAndBytes) {
  expect_ranks(options(), [](Rank& me) {
    Comm& comm = *me.comm;
    const int64_t n = comm.size();
    std::vector<float> data(static_cast<size_t>(10 * n)), out(data.size());
    comm.all_reduce(data.data(), 10, Dtype::kF32);
    comm.all_reduce(data.data(), 5, Dtype::kF32, Reduce::kMax);
    comm.reduce_scatter(data.data(), out.data(), 10, Dtype::kF32);
    comm.all_gather(data.data(), out.data(), 40);
    comm.all_to_all(data.data(), out.data(), 40);
    comm.broadcast(data.data(), 12, 0);
    comm.barrier();
    const auto split = comm.split(0, 0);
    const auto has = [&](CommOp op, int64_t calls, int64_t bytes) {
      check(comm.count(op).calls == calls && comm.count(op).bytes == bytes, comm_op_name(op));
    };
    has(CommOp::kAllReduce, 2, 60);
    has(CommOp::kReduceScatter, 1, 40 * n);
    has(CommOp::kAllGather, 1, 40);
    has(CommOp::kAllToAll, 1, 40 * n);
    has(CommOp::kBroadcast, 1, 12);
    has(CommOp::kBarrier, 1, 0);
    has(CommOp::kSend, 0, 0);
    check(split->count(CommOp::kAllReduce).calls == 0, "a new group has counted nothing");
  });
}

// A sum in another order must be detected: else the comparison above would prove nothing.
TEST(ContractControl, AnotherOrderHasOtherBits) {
  for (const Dtype dtype : {Dtype::kF32, Dtype::kF64}) {
    int64_t different = 0;
    for (int64_t i = 0; i < 1000; ++i) {
      uint64_t in[4], bits = 0;
      for (int rank = 0; rank < 4; ++rank) in[rank] = input_bits(dtype, 9, rank, i);
      if (dtype == Dtype::kF32) {
        float sum = 0;
        for (const uint64_t v : in) sum += std::bit_cast<float>(static_cast<uint32_t>(v));
        bits = std::bit_cast<uint32_t>(sum);
      } else {
        double sum = 0;
        for (const uint64_t v : in) sum += std::bit_cast<double>(v);
        bits = std::bit_cast<uint64_t>(sum);
      }
      different += bits != reduced_bits(dtype, Reduce::kSum, 9, 4, i);
    }
    EXPECT_GT(different, 50) << dtype_name(dtype);
  }
}

std::vector<Case> all_cases() {
  std::vector<Case> cases = {{BackEnd::kSolo, 1}};
  for (const BackEnd back_end : {BackEnd::kThreads, BackEnd::kProcesses}) {
    for (const int n : {1, 2, 3, 4, 5, 7}) cases.push_back({back_end, n});
  }
  for (const BackEnd back_end : {BackEnd::kIpcThreads, BackEnd::kNcclThreads}) {
    for (const int n : {1, 2, 3, 5}) cases.push_back({back_end, n});
  }
  if (!has_gloo()) return cases;
  for (const int n : {1, 2, 3, 5}) cases.push_back({BackEnd::kGlooThreads, n});
  for (const int n : {3, 4}) cases.push_back({BackEnd::kGlooProcesses, n});
  for (const int n : {3, 4, 6, 8}) cases.push_back({BackEnd::kNodesThreads, n});
  return cases;
}
INSTANTIATE_TEST_SUITE_P(BackEnds, Contract, ::testing::ValuesIn(all_cases()), [](const auto& p) {
  return fmt::format("{}_{}", name_of(p.param.back_end), p.param.num_ranks);
});

}  // namespace
}  // namespace weft::testing
