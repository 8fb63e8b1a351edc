// tests/comm/split_test.cpp: groups within groups, and two of them used at the same time.
#include <gtest/gtest.h>

#include <thread>

#include "tests/comm/ranks.h"
#include "tests/comm/tree.h"

namespace weft::testing {
namespace {

class Split : public ::testing::TestWithParam<BackEnd> {
 protected:
  RanksOptions options(int num_ranks) const { return small_chunks(GetParam(), num_ranks); }
};

// The ranks of a group, as reported by themselves.
std::vector<int64_t> members(Comm& group, int64_t me) {
  std::vector<int64_t> all(static_cast<size_t>(group.size()));
  group.all_gather(&me, all.data(), sizeof me);
  return all;
}

// rank = dp_rank * tp + tp_rank: tensor-parallel groups are neighbours, data-parallel ones strided.
TEST_P(Split, MeshOfDataAndTensorParallel) {
  expect_ranks(options(6), [](Rank& me) {
    const int rank = me.comm->rank(), tp = 2;
    const auto tensor = me.comm->split(rank / tp, rank % tp);
    const auto data = me.comm->split(rank % tp, rank / tp);
    check(tensor->size() == 2 && tensor->rank() == rank % tp, "tensor group");
    check(data->size() == 3 && data->rank() == rank / tp, "data group");
    check(std::string(data->name()) == me.comm->name(), "name");
    const int64_t first = rank / tp * tp;
    check(members(*tensor, rank) == std::vector<int64_t>{first, first + 1}, "tensor members");
    const int64_t t = rank % tp;
    check(members(*data, rank) == std::vector<int64_t>{t, t + 2, t + 4}, "data members");
  });
}

TEST_P(Split, OrderIsByKeyThenRank) {
  expect_ranks(options(5), [](Rank& me) {
    const int rank = me.comm->rank();
    const auto reversed = me.comm->split(7, -rank);
    check(members(*reversed, rank) == std::vector<int64_t>{4, 3, 2, 1, 0}, "by key");
    const auto equal = me.comm->split(-3, 0);
    check(members(*equal, rank) == std::vector<int64_t>{0, 1, 2, 3, 4}, "by rank");
    const auto alone = me.comm->split(rank, 0);
    check(alone->size() == 1 && alone->rank() == 0, "alone");
    check(members(*alone, rank) == std::vector<int64_t>{rank}, "alone");
  });
}

// In the order of the group, not of the world.
TEST_P(Split, SumsFollowTheOrderOfTheGroup) {
  expect_ranks(options(4), [](Rank& me) {
    const int place = 3 - me.comm->rank();
    const auto reversed = me.comm->split(0, place);
    char* data = me.take(5000 * 4, true);
    for (uint64_t seed = 1; seed < 4; ++seed) {
      fill(data, Dtype::kF32, seed, place, 0, 5000);
      reversed->all_reduce(data, 5000, Dtype::kF32);
      const auto bad = compare_reduced(data, Dtype::kF32, Reduce::kSum, seed, 4, 0, 5000);
      check(bad.empty(), bad);
    }
  });
}

TEST_P(Split, GroupsOfGroups) {
  expect_ranks(options(7), [](Rank& me) {
    std::unique_ptr<Comm> group = me.comm->split(0, 0);
    while (group->size() > 1) {
      int64_t one = 1;
      group->all_reduce(&one, 1, Dtype::kI64);
      check(one == group->size(), "size");
      group = group->split(group->rank() % 2, 0);
    }
  });
}

// Two threads of each rank, each in its own group, at their own pace, with all kinds of buffers.
class SplitThreads : public Split {};
TEST_P(SplitThreads, TwoGroupsAtTheSameTime) {
  expect_ranks(options(4), [](Rank& me) {
    const int rank = me.comm->rank(), tp = 2;
    const auto tensor = me.comm->split(rank / tp, rank);
    const auto data = me.comm->split(rank % tp, rank);
    char* buffers[4] = {me.take(40000, true), me.take(40000, false), me.take(40000, true),
                        me.take(40000, false)};
    std::string bad[2];
    const auto work = [&](Comm& group, int which) {
      for (uint64_t seed = 1; seed <= 60 && bad[which].empty(); ++seed) {
        const int64_t count = static_cast<int64_t>(seed * 977 % 10000);
        char* buffer = buffers[which * 2 + static_cast<int>(seed % 2)];
        fill(buffer, Dtype::kF32, seed, group.rank(), 0, count);
        group.all_reduce(buffer, count, Dtype::kF32);
        bad[which] = compare_reduced(buffer, Dtype::kF32, Reduce::kSum, seed, 2, 0, count);
      }
    };
    std::thread other([&] { work(*data, 1); });
    work(*tensor, 0);
    other.join();
    check(bad[0].empty(), bad[0]);
    check(bad[1].empty(), bad[1]);
  });
}

INSTANTIATE_TEST_SUITE_P(BackEnds, Split, ::testing::ValuesIn(back_ends_of_many()),
                         [](const auto& p) { return name_of(p.param); });
INSTANTIATE_TEST_SUITE_P(BackEnds, SplitThreads, ::testing::ValuesIn(back_ends_of_the_host()),
                         [](const auto& p) { return name_of(p.param); });

TEST(Split, OfOneIsOne) {
  const auto comm = make_solo_comm();
  const auto part = comm->split(5, 3);
  EXPECT_EQ(part->size(), 1);
  part->abort("both end");
  EXPECT_THROW(comm->barrier(), std::exception);
}

}  // namespace
}  // namespace weft::testing
