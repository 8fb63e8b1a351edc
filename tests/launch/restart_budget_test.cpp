// tests/launch/restart_budget_test.cpp: how many deaths are survived, and what is said in the end.
#include "launch/restart_budget.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

TEST(RestartBudget, IsSpentAndNamesTheDeathsBefore) {
  RestartBudget budget(2, 0);
  EXPECT_TRUE(budget.allows(10));
  budget.count("rank 2 was killed by SIGKILL", 10);
  EXPECT_EQ(budget.number(), " (restart 1 of 2)");
  EXPECT_EQ(budget.spent_words(), "");
  EXPECT_TRUE(budget.allows(20));
  budget.count("rank 1 hangs", 20);
  EXPECT_EQ(budget.used(100'000), 2);
  EXPECT_FALSE(budget.allows(100'000));
  EXPECT_EQ(budget.spent_words(),
            "; launch.max_restarts=2 is used up (before: rank 2 was killed by SIGKILL at step 10, "
            "then rank 1 hangs at step 20)");
}

// Who waited says that a rank hangs; which one it was is known later.
TEST(RestartBudget, TheLastReasonIsCorrected) {
  RestartBudget budget(1, 0);
  budget.correct("nobody");  // there is none
  budget.count("rank 0 waited for rank 1", 5);
  budget.correct("rank 3 hung");
  EXPECT_FALSE(budget.allows(6));
  EXPECT_EQ(budget.spent_words(),
            "; launch.max_restarts=1 is used up (before: rank 3 hung at step 5)");
}

TEST(RestartBudget, OfManyTheFirstAndTheLastAreNamed) {
  RestartBudget budget(5, 0);
  for (int i = 1; i <= 5; ++i) budget.count("death " + std::to_string(i), i);
  EXPECT_FALSE(budget.allows(6));
  EXPECT_EQ(budget.spent_words(),
            "; launch.max_restarts=5 is used up (before: death 1 at step 1, then 3 more, then "
            "death 5 at step 5)");
}

TEST(RestartBudget, ProgressRestoresItForWhoAsksToo) {
  RestartBudget budget(1, 10);
  budget.count("a death", 100);
  EXPECT_EQ(budget.used(100), 1);  // not of the steps before it
  budget.continue_from(95);
  EXPECT_EQ(budget.used(104), 1);
  EXPECT_EQ(budget.used(105), 0);
  EXPECT_TRUE(budget.allows(105));
  budget.count("another", 105);
  EXPECT_EQ(budget.number(), " (restart 1 of 1)");
  EXPECT_FALSE(budget.allows(106));
}

TEST(RestartBudget, WithoutBoundOrWithoutAny) {
  RestartBudget unbounded(-1, 0);
  for (int i = 0; i < 3000; ++i) {
    ASSERT_TRUE(unbounded.allows(i));
    unbounded.count("a death", i);
  }
  EXPECT_EQ(unbounded.used(3000), 3000);
  EXPECT_EQ(unbounded.number(), "");
  RestartBudget none(0, 0);
  EXPECT_FALSE(none.allows(0));
  EXPECT_EQ(none.spent_words(), "");  // there was nothing to use up
}

}  // namespace
}  // namespace weft
