// tests/net/snapshot_slots_test.cpp: slots of several ranks, in one process and in a killed one.
#include "net/snapshot_slots.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>

#include "base/error.h"

namespace weft {
namespace {

void write_step(SnapshotSlots& slots, int rank, int slot, int64_t step) {
  std::byte* bytes = slots.begin(rank, slot, step, 0);
  std::memset(bytes, static_cast<int>(step), 100);
  slots.finish(rank, slot, "step " + std::to_string(step));
}

TEST(SnapshotSlots, TheNewestStepThatIsWholeOnEveryRank) {
  const auto slots = SnapshotSlots::create(2);
  EXPECT_FALSE(slots->newest_common());
  for (int r = 0; r < 2; ++r) slots->reserve(r, 100, "layout");
  write_step(*slots, 0, 0, 4);
  EXPECT_FALSE(slots->newest_common());
  write_step(*slots, 1, 1, 4);  // which of its slots a rank uses is its own affair
  EXPECT_EQ(slots->newest_common(), 4);
  write_step(*slots, 0, 1, 6);
  EXPECT_EQ(slots->newest_common(), 4);
  static_cast<void>(slots->begin(1, 0, 6, 0));
  EXPECT_EQ(slots->newest_common(), 4);
  slots->finish(1, 0, "");
  EXPECT_EQ(slots->newest_common(), 6);
  static_cast<void>(slots->begin(0, 1, 8, 0));
  EXPECT_EQ(slots->newest_common(), 4);
  static_cast<void>(slots->begin(1, 1, 8, 0));  // a rank that ran ahead: nothing is left
  EXPECT_FALSE(slots->newest_common());
}

TEST(SnapshotSlots, OutliveTheProcessThatWroteThem) {
  const auto slots = SnapshotSlots::create(1);
  const pid_t pid = ::fork();
  if (pid == 0) {
    slots->reserve(0, 100, "of a child");
    write_step(*slots, 0, 0, 7);
    static_cast<void>(slots->begin(0, 1, 8, 0));
    ::raise(SIGKILL);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));
  const auto other = SnapshotSlots::attach(::dup(slots->fd()));
  EXPECT_EQ(other->num_ranks(), 1);
  EXPECT_EQ(other->layout(0), "of a child");
  EXPECT_EQ(other->newest_common(), 7);
  const auto view = other->find(0, 7);
  ASSERT_TRUE(view);
  EXPECT_EQ(view->text, "step 7");
  EXPECT_EQ(view->bytes, 100);
  for (int i = 0; i < 100; ++i) ASSERT_EQ(view->data[i], std::byte{7});
  EXPECT_FALSE(other->find(0, 8));
}

// A reader without a lock: what it has copied counts only where this holds afterwards.
TEST(SnapshotSlots, AViewKnowsWhetherItsSlotWasTouched) {
  const auto slots = SnapshotSlots::create(1);
  slots->reserve(0, 100, "a");
  write_step(*slots, 0, 0, 1);
  write_step(*slots, 0, 1, 2);
  const auto view = slots->find(0, 1);
  ASSERT_TRUE(view);
  EXPECT_TRUE(slots->still_holds(0, *view));
  write_step(*slots, 0, 1, 3);  // another slot
  EXPECT_TRUE(slots->still_holds(0, *view));
  static_cast<void>(slots->begin(0, 0, 1, 1));
  EXPECT_FALSE(slots->still_holds(0, *view));
  slots->finish(0, 0, "");  // the same step again
  EXPECT_FALSE(slots->still_holds(0, *view));
  const auto again = slots->find(0, 1);
  ASSERT_TRUE(again);
  EXPECT_TRUE(slots->still_holds(0, *again));
  slots->drop(0, 0);
  EXPECT_FALSE(slots->still_holds(0, *again));
}

TEST(SnapshotSlots, AnotherLayoutEmptiesThem) {
  const auto slots = SnapshotSlots::create(1);
  slots->reserve(0, 100, "a");
  write_step(*slots, 0, 0, 1);
  slots->reserve(0, 100, "a");
  EXPECT_EQ(slots->newest_common(), 1);
  slots->reserve(0, 200, "a");
  EXPECT_FALSE(slots->newest_common());
  write_step(*slots, 0, 0, 2);
  slots->reserve(0, 200, "b");
  EXPECT_FALSE(slots->newest_common());
  EXPECT_EQ(slots->layout(0), "b");
  write_step(*slots, 0, 0, 3);
  slots->drop_all();
  EXPECT_FALSE(slots->newest_common());
  EXPECT_EQ(slots->layout(0), "");
}

TEST(SnapshotSlots, OnlyOurMemoryIsAttached) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  EXPECT_THROW(static_cast<void>(SnapshotSlots::attach(ends[0])), UserError);
  ::close(ends[1]);
}

}  // namespace
}  // namespace weft
