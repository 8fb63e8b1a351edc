// tests/launch/previous_slots_test.cpp: the step that a layout which has ended leaves in memory.
#include "launch/previous_slots.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

std::optional<Parked> parked(std::vector<int64_t> steps, std::vector<int64_t> kept) {
  return Parked{3, "", std::move(steps), std::move(kept)};
}

TEST(PreviousSlots, TheNewestStepThatAllHaveOrTheirPartnersKeep) {
  EXPECT_EQ(newest_parked_step({parked({40, 41}, {}), parked({40, 41}, {})}), 41);
  EXPECT_EQ(newest_parked_step({parked({40, 41}, {}), parked({40, 39}, {})}), 40);
  EXPECT_EQ(newest_parked_step({parked({41}, {}), parked({40}, {})}), std::nullopt);
  EXPECT_EQ(newest_parked_step({parked({40, 41}, {}), std::nullopt, parked({41, 40}, {40})}), 40);
  EXPECT_EQ(newest_parked_step({std::nullopt, parked({41, 40}, {40, 39})}), 40);
}

TEST(PreviousSlots, OfALostNodeTheNextOneHasTheCopies) {
  PreviousSlots slots({parked({40}, {40}), std::nullopt, parked({40}, {40})}, {"a", "", "c"});
  EXPECT_EQ(slots.newest_step(), 40);
  EXPECT_EQ(slots.endpoints(), (std::vector<std::string>{"a", "c", "c"}));
}

// Another node is lost while the layout changes: it counts where its copies are left.
TEST(PreviousSlots, FurtherLossesAreBornUntilACopyIsGone) {
  PreviousSlots slots({parked({40}, {40}), parked({40}, {40}), parked({40}, {40}), std::nullopt},
                      {"a", "b", "c", ""});
  slots.lose("x");  // a spare
  slots.lose("b");
  EXPECT_EQ(slots.newest_step(), 40);
  EXPECT_EQ(slots.endpoints(), (std::vector<std::string>{"a", "c", "c", "a"}));
  slots.lose("a");  // its copies were with b, and it had those of the last
  EXPECT_EQ(slots.newest_step(), std::nullopt);
}

}  // namespace
}  // namespace weft
