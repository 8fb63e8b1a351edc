// tests/train/snapshots_test.cpp: which slot a copy goes to, so that a common step is always there.
#include "train/snapshots.h"

#include <gtest/gtest.h>

#include <barrier>
#include <cstring>
#include <optional>
#include <random>
#include <shared_mutex>
#include <thread>
#include <vector>

#include "train/snapshot_cadence.h"

namespace weft::testing {
namespace {

struct OneRank {
  std::vector<float> values = {1, 2, 3};
  RankFile file;
  SlotPlace place;
  OneRank(std::shared_ptr<SnapshotSlots> slots, int rank)
      : file({whole_tensor("values" + std::to_string(rank), {3}, Dtype::kF32, values.data())},
             rank),
        place{std::move(slots), rank, 0} {
    EXPECT_EQ(reserve_slots(place, file), "");
  }
};

TEST(Snapshots, TheHeldAndTheNewestSlotAreNotOverwritten) {
  const auto slots = SnapshotSlots::create(1);
  const OneRank rank(slots, 0);
  Snapshots snapshots(rank.file, &host_device(), rank.place);
  const auto take = [&](int64_t step) {
    snapshots.copy(snapshots.choose(step), step, "");
    EXPECT_EQ(slots->newest_common(), step);
  };
  take(0);
  take(1);
  EXPECT_TRUE(snapshots.find(0));
  take(2);
  EXPECT_FALSE(snapshots.find(0));
  EXPECT_TRUE(snapshots.find(1));
  snapshots.hold(*snapshots.find(2));
  for (int64_t step = 3; step < 9; ++step) {
    take(step);
    EXPECT_TRUE(snapshots.find(2));
    EXPECT_TRUE(snapshots.find(step - 1));
  }
  snapshots.release();
  for (const int64_t step : {9, 10}) take(step);
  EXPECT_FALSE(snapshots.find(2));
  EXPECT_TRUE(snapshots.find(9));
}

TEST(Snapshots, AContinuedRunKeepsTheStepsItNeeds) {
  const auto slots = SnapshotSlots::create(1);
  OneRank rank(slots, 0);
  {
    Snapshots snapshots(rank.file, &host_device(), rank.place);
    for (const int64_t step : {5, 6}) {
      rank.values[0] = static_cast<float>(step);
      snapshots.copy(snapshots.choose(step), step, "text of " + std::to_string(step));
    }
  }
  EXPECT_EQ(reserve_slots(rank.place, rank.file), "");
  Snapshots snapshots(rank.file, &host_device(), rank.place, {5});
  EXPECT_EQ(slots->newest_common(), 5);
  EXPECT_EQ(slots->find(0, 5)->text, "text of 5");
  snapshots.copy(snapshots.choose(6), 6, "");
  EXPECT_TRUE(slots->has(0, 5));
  EXPECT_TRUE(slots->has(0, 6));
}

// Ranks as threads, in the order of docs/design/0015: an exchange over all, a copy beside the
// passes, an update that waits for it. At any time, also in the middle of copies, some step is
// whole on every rank: the one before the newest that any rank has begun to copy, or a newer one.
TEST(Snapshots, SomeStepIsWholeOnEveryRankAtAnyTime) {
  constexpr int kRanks = 3;
  constexpr int64_t kSteps = 300;
  const auto slots = SnapshotSlots::create(kRanks);
  std::shared_mutex world;  // whoever changes a slot shares it; the observer stops all
  std::barrier<> exchange(kRanks);
  std::atomic<int> num_done{0};
  std::atomic<int64_t> newest_begun{0};
  std::vector<std::thread> threads;
  for (int r = 0; r < kRanks; ++r) {
    threads.emplace_back([&, r] {
      std::mt19937 dice(static_cast<unsigned>(r));
      const OneRank rank(slots, r);
      Snapshots snapshots(rank.file, &host_device(), rank.place);
      snapshots.copy(snapshots.choose(0), 0, "");
      exchange.arrive_and_wait();
      for (int64_t step = 1; step <= kSteps; ++step) {
        exchange.arrive_and_wait();  // all have made the last update
        const int slot = snapshots.choose(step);
        if (step % 50 == 7) snapshots.hold(slot);
        if (step % 50 == 31) snapshots.release();
        std::thread copy([&] {
          const auto change = [&](const auto& fn) {
            const std::shared_lock lock(world);
            fn();
          };
          change([&] {
            static_cast<void>(slots->begin(r, slot, step, 0));
            newest_begun = step;  // ranks are never a step apart here
          });
          std::this_thread::sleep_for(std::chrono::microseconds(dice() % 200));
          change([&] { slots->finish(r, slot, ""); });
        });
        copy.join();  // the update waits for it
      }
      ++num_done;
    });
  }
  while (slots->newest_common() != 0 && num_done == 0) std::this_thread::yield();
  int64_t last = 0;
  while (num_done < kRanks) {
    const std::unique_lock lock(world);
    const auto common = slots->newest_common();
    ASSERT_TRUE(common.has_value()) << "after step " << last;
    ASSERT_GE(*common, newest_begun - 1);
    ASSERT_GE(*common, last);
    last = *common;
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(slots->newest_common(), kSteps);
}

TEST(SnapshotCadence, CostsUnderTwoPercent) {
  SnapshotCadence cadence(0);
  int noted = 1;
  while (!cadence.note({0.1, true, noted == 1 ? 0.5 : 0.005, 0})) {
    EXPECT_TRUE(cadence.is_due(noted));  // one at each step of the trial
    ++noted;
  }
  EXPECT_EQ(cadence.wish(), 3);  // 5 ms of 300: 1.7 %
  cadence.choose(3);
  EXPECT_TRUE(cadence.is_due(10));  // at once
  EXPECT_FALSE(cadence.note({1, true, 1, 0}));
  EXPECT_TRUE(cadence.is_due(9));
  EXPECT_FALSE(cadence.is_due(10));
  EXPECT_FALSE(SnapshotCadence(7).is_due(8));
}

// What a GPU copies beside its kernels costs only what steps become longer by.
int64_t wish_of_gpu(double with_s, double without_s, double copy_s, double wait_s) {
  SnapshotCadence cadence(0, SnapshotCadence::Kind::kGpu);
  EXPECT_EQ(cadence.distance(), 2);
  for (int64_t step = 0;; ++step) {
    const bool has_copy = cadence.is_due(step);
    EXPECT_EQ(has_copy, step % 2 == 0);
    const double first_s = step < 2 ? 1 : 0;  // fresh memory, and what is built at the first steps
    if (cadence.note({first_s + (has_copy ? with_s : without_s), has_copy, first_s + copy_s,
                      first_s + wait_s}))
      return cadence.wish();
  }
}

TEST(SnapshotCadence, OnAGpuStepsWithACopyAreComparedWithThoseWithout) {
  EXPECT_EQ(wish_of_gpu(0.1004, 0.1, 0.06, 0), 1);
  EXPECT_EQ(wish_of_gpu(0.105, 0.1, 0.06, 0), 3);
  EXPECT_EQ(wish_of_gpu(0.09, 0.1, 0.12, 0.03), 19);  // steps of unequal length; 90 ms are 100 %
  EXPECT_EQ(wish_of_gpu(0.5, 0.1, 0.004, 0), 3);      // likewise
}

// Steps of 0.1 s on several nodes. longer_s: by what the step with a copy, and those after it, are
// longer; the first copy (of the start) takes first_s more.
struct Nodes {
  std::vector<double> longer_s;
  double sent_s, copy_s = 0, first_s = 0;
  double noise = 0;                        // of each step, at most
  std::optional<int64_t> short_step = {};  // has no update
  bool is_first_known = true;              // else nobody knows how long that copy took
};

struct Trial {
  std::vector<int64_t> copies;  // steps noted before each
  int64_t steps = 0, every = 0;
};

Trial try_nodes(const Nodes& nodes) {
  SnapshotCadence cadence(0, SnapshotCadence::Kind::kNodes);
  Trial trial;
  std::mt19937 dice(7);
  std::uniform_real_distribution<double> noise(-nodes.noise, nodes.noise);
  int64_t last = 0;  // step with a copy: the first has the one of the start
  bool is_sent = false;
  for (bool is_known = false; !is_known; ++trial.steps) {
    const bool is_due = cadence.is_due(trial.steps);
    if (is_due) {
      EXPECT_TRUE(is_sent);
      EXPECT_LE(trial.steps - last, cadence.distance());
      trial.copies.push_back(last = trial.steps);
    }
    is_sent = cadence.waits_for_partner() || (is_sent && !is_due);
    const auto offset = static_cast<size_t>(trial.steps - last);
    const double first_s = last == 0 ? nodes.first_s : 0.0;
    double step_s = (0.1 + (last == 0 && trial.steps > 0     ? 0.0
                            : offset < nodes.longer_s.size() ? nodes.longer_s[offset]
                                                             : 0.0)) *
                    (1 + noise(dice));
    if (nodes.short_step == trial.steps) step_s = 0.05;
    const bool is_sent_known = nodes.is_first_known || last > 0;
    is_known =
        cadence.note({step_s + (trial.steps == 0 ? first_s : 0.0), is_due || trial.steps == 0,
                      nodes.copy_s + first_s, 0, is_sent_known ? nodes.sent_s + first_s : 0.0});
    if (cadence.needs_spacing()) cadence.space(cadence.fewest_steps());
  }
  EXPECT_TRUE(is_sent);
  trial.every = cadence.wish();
  cadence.choose(trial.every);
  EXPECT_TRUE(cadence.is_due(trial.steps));  // whatever the number: the last is some steps ago
  EXPECT_FALSE(cadence.note({0.1, true, 0, 0}));
  EXPECT_EQ(cadence.is_due(trial.every * 1000 + 1), trial.every == 1);
  return trial;
}

TEST(SnapshotCadence, OnSeveralNodesLongerStepsAreTheCost) {
  const Trial trial = try_nodes({{0.02}, 0.05, 0.001});
  EXPECT_EQ(trial.copies, (std::vector<int64_t>{3, 5, 7}));
  EXPECT_EQ(trial.steps, 9);
  EXPECT_EQ(trial.every, 15);                             // 20 ms of 1500: 1.3 %
  EXPECT_EQ(try_nodes({{0.015, 0.01}, 0.12}).every, 18);  // 25 ms: the second step too
  EXPECT_EQ(try_nodes({{}, 0.05}).every, 1);
  EXPECT_EQ(try_nodes({{}, 0.05, 0.01}).every, 1);  // beside the passes
}

// A slow link, beside steps that need little of it.
TEST(SnapshotCadence, OnSeveralNodesNoCopyWaitsForTheOneBefore) {
  const Trial trial = try_nodes({{}, 0.45});
  EXPECT_EQ(trial.copies, (std::vector<int64_t>{3, 9, 15}));
  EXPECT_EQ(trial.every, 5);
  const Trial slow = try_nodes({std::vector<double>(90, 0.002), 9.0});
  EXPECT_EQ(slow.copies, (std::vector<int64_t>{3, 11, 19}));  // it must not take for ever
  EXPECT_EQ(slow.every, 129);                                 // 90 steps, each 2 ms longer
}

TEST(SnapshotCadence, OnSeveralNodesTheFirstCopyTouchesFreshMemory) {
  EXPECT_EQ(try_nodes({{0.02}, 0.05, 0.001, 0.14}).every, 15);
  Nodes unknown{{0.015, 0.01}, 0.12};
  unknown.is_first_known = false;  // a run that continues: that copy was there
  EXPECT_EQ(try_nodes(unknown).copies, (std::vector<int64_t>{3, 11, 19}));
  EXPECT_EQ(try_nodes(unknown).every, 18);
}

TEST(SnapshotCadence, OnSeveralNodesUnequalStepsAreNotTheCost) {
  EXPECT_LE(try_nodes({{}, 0.01, 0.001, 0, 0.5}).every, 15);  // 21 ms is the most that it can be
  for (int64_t step = 0; step < 9; ++step) {
    Nodes nodes{{0.02}, 0.05};
    nodes.short_step = step;
    const int64_t every = try_nodes(nodes).every;
    EXPECT_GE(every, 15) << step;
    EXPECT_LE(every, 2 * 15) << step;
  }
}

}  // namespace
}  // namespace weft::testing
