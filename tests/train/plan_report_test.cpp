// tests/train/plan_report_test.cpp: how the ranks of a plan that differ are listed.
#include "train/plan_report.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

// Each rank a class of its own, with arenas of 1000, 2000, ... bytes.
std::string text_of_ranks(int num_ranks) {
  PlanReport report;
  report.layout.dp = num_ranks;
  for (int rank = 0; rank < num_ranks; ++rank) {
    report.classes.first.push_back(rank);
    report.classes.of.push_back(rank);
    report.plans.push_back({.memory = {.parameters = 1000 * (rank + 1)}});
  }
  return report.to_text();
}

TEST(PlanReportText, ListsFiveArenasThatDifferAndCountsTheRest) {
  const std::string six = text_of_ranks(6);
  EXPECT_NE(six.find("2,000 bytes  on rank 1\n"), std::string::npos) << six;
  EXPECT_NE(six.find("6,000 bytes  on rank 5\n"), std::string::npos) << six;
  EXPECT_EQ(six.find("smaller ones"), std::string::npos) << six;
  const std::string nine = text_of_ranks(9);
  EXPECT_NE(nine.find("5,000 bytes  on rank 4\n  and 3 smaller ones\n"), std::string::npos) << nine;
  EXPECT_EQ(nine.find("4,000 bytes"), std::string::npos) << nine;
}

}  // namespace
}  // namespace weft
