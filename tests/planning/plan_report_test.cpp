// tests/planning/plan_report_test.cpp: the text and numbers of `weft plan`, from made-up numbers.
#include "planning/plan_report.h"

#include <gtest/gtest.h>

#include "planning/plan_fit.h"
#include "tests/golden_file.h"

namespace weft {
namespace {

using testing::expect_file;

constexpr int64_t kMiB = 1 << 20;

// Ranks of dp 2 and tp 2, of which the last has less; odd numbers everywhere.
PlanReport report(bool is_on_gpu) {
  PlanReport r;
  r.num_parameters = 1234567;
  r.layout.dp = 2;
  r.layout.tp = 2;
  r.layout.shard = Shard::kZero2;
  r.classes = {{0, 3}, {0, 0, 0, 1}};
  r.plans = {{{3 * kMiB, 5 * kMiB, 7 * kMiB, 11 * kMiB, 13 * kMiB, 17 * kMiB}, 3.25e9},
             {{2 * kMiB, 5 * kMiB, 7 * kMiB, 11 * kMiB, 13 * kMiB, 17 * kMiB}, 3.0e9}};
  r.threads = 2;
  r.num_passes = 3;
  r.tokens = 4096;
  r.wire = {{CommOp::kAllReduce, Axis::kTensor, 2, 6, 1000},
            {CommOp::kAllGather, Axis::kData, 2, 4, 600}};
  r.is_on_gpu = is_on_gpu;
  r.host = {19 * kMiB, 23 * kMiB, 29 * kMiB, 31 * kMiB, 5 * kMiB, 37 * kMiB, 41 * kMiB};
  return r;
}

PlanReport alone(bool is_on_gpu) {
  PlanReport r = report(is_on_gpu);
  r.layout = {};
  r.classes = {{0}, {0}};
  r.plans.resize(1);
  r.wire.clear();
  r.threads = 1;
  r.num_passes = 1;
  r.step_ms = 84.4;
  return r;
}

TEST(PlanReport, SumsOverRanks) {
  const PlanReport r = report(false);
  EXPECT_EQ(r.arena(), 56 * kMiB);
  EXPECT_EQ(r.largest_arena(), 56 * kMiB);
  EXPECT_EQ(r.sum_of_arenas(), (3 * 56 + 55) * kMiB);
  EXPECT_EQ(r.of_rank(3).memory.total(), 55 * kMiB);
  EXPECT_EQ(r.overhead(), (19 + 23 + 29 + 31 + 5 + 37) * kMiB);
  EXPECT_EQ(r.overhead(1), (19 + 29 + 31 + 5 + 37) * kMiB);
  EXPECT_EQ(r.resident(), (56 + 144) * kMiB);
  EXPECT_EQ(r.resident_total(), (3 * 56 + 55 + 4 * (19 + 29 + 31 + 5) + 23 + 41 + 37) * kMiB);
  EXPECT_EQ(r.received(), received_bytes(r.wire[0]) + received_bytes(r.wire[1]));
  PlanReport staged = report(true);
  staged.staging = 8 * kMiB;
  EXPECT_EQ(staged.overhead(), report(true).overhead() + 8 * kMiB);
}

TEST(PlanReport, MatchesTheFile) {
  PlanReport more = report(false);
  more.idle = {"a key has no effect"};
  more.is_longest = true;
  PlanReport shared = report(true);
  shared.ranks_on_a_gpu = 4;
  shared.is_packed = true;
  shared.staging = 8 * kMiB;
  PlanReport one = alone(true);
  one.is_step_of_fp32 = true;
  std::string text;
  for (const PlanReport& r : {more, shared, alone(false), one})
    text += r.to_text() + "----\n" + r.to_json().dump(2) + "\n====\n";
  expect_file("tests/planning/data/plan_report.txt", text);
}

// Seven kinds of ranks with less than rank 0: five are listed.
TEST(PlanReport, ListsFiveOtherArenas) {
  PlanReport r = report(false);
  r.layout.dp = 8;
  r.layout.tp = 1;
  r.classes = {{}, {}};
  r.plans.clear();
  for (int rank = 0; rank < 8; ++rank) {
    r.classes.first.push_back(rank);
    r.classes.of.push_back(rank);
    r.plans.push_back({{(100 - rank) * kMiB, 0, 0, 0, 0, 0}, 1e9});
  }
  const std::string text = r.to_text();
  EXPECT_NE(text.find("on rank 1\n"), std::string::npos) << text;
  EXPECT_NE(text.find("on rank 5\n  and 2 smaller ones\n"), std::string::npos) << text;
  r.classes.of = {0, 1, 1, 1, 1, 1, 1, 1};
  EXPECT_NE(r.to_text().find("on ranks 1, 2, 3, 4, 5 and 2 more\n"), std::string::npos);
  r.classes.of = {0, 1, 1, 1, 1, 1, 0, 0};
  EXPECT_NE(r.to_text().find("on ranks 1, 2, 3, 4, 5\n"), std::string::npos);
}

TEST(PlanReport, RanksAndTimesInWords) {
  EXPECT_EQ(describe_ranks(1, false, 1), "1 rank");
  EXPECT_EQ(describe_ranks(4, false, 1), "4 ranks");
  EXPECT_EQ(describe_ranks(1, true, 1), "1 rank with a GPU");
  EXPECT_EQ(describe_ranks(4, true, 1), "4 ranks with a GPU each");
  EXPECT_EQ(describe_ranks(4, true, 4), "4 ranks that share a GPU");
  EXPECT_EQ(describe_ranks(4, true, 2), "4 ranks, 2 of them on a GPU");
  EXPECT_EQ(describe_step_time(83.6, 1, false), "84 ms");
  EXPECT_EQ(describe_step_time({}, 2, true),
            "unknown for several GPUs, whose interconnect was not measured");
  EXPECT_EQ(describe_step_time({}, 1, false), "unknown until `weft doctor --measure` is run once");
  EXPECT_NE(describe_step_time({}, 100000, false).find("more ranks than one machine can run"),
            std::string::npos);
}

FitRow row(int64_t dp, int64_t tp, const char* shard, bool fits, int64_t mib, const char* reason) {
  FitRow r;
  r.dp = dp;
  r.tp = tp;
  r.shard = shard;
  r.is_admissible = mib > 0;
  r.fits = fits;
  r.reason = reason;
  r.resident = mib * kMiB;
  r.arena = (mib - 40) * kMiB;
  r.received = mib * 1000;
  r.received_per_token = static_cast<double>(mib) / 3;
  return r;
}

FitReport fit(std::vector<FitRow> rows) {
  FitReport r;
  r.memory = 500 * kMiB;
  r.ranks = 4;
  r.overhead = 100 * kMiB;
  r.rows = std::move(rows);
  return r;
}

TEST(FitReport, MatchesTheFile) {
  FitReport good = fit({row(4, 1, "zero1", true, 400, ""), row(2, 2, "none", false, 600, "over"),
                        row(1, 4, "none", false, 0, "3 heads")});
  FitReport timed = good;
  timed.rows[1].step_ms = 12.6;
  timed.rows[0].is_step_of_fp32 = true;
  FitReport none = fit({row(4, 1, "zero3", false, 700, "over")});
  none.tried = {"a", "b", "c"};
  FitReport advised = none;
  advised.advice = {{"set train.micro_batch: 1", 4, row(4, 1, "zero3", true, 450, "")}};
  FitReport below = none;
  below.memory = 100 * kMiB;
  FitReport shared = none;
  shared.is_on_gpu = true;
  shared.ranks_on_a_gpu = 4;  // of 500 MiB each has 125
  FitReport impossible = fit({row(4, 1, "none", false, 0, "no")});
  impossible.nearest_ranks = {3, 6};
  FitReport single = fit({row(1, 1, "none", false, 0, "no")});
  single.ranks = 1;
  std::string text;
  for (const FitReport& r : {good, timed, none, advised, below, shared, impossible, single})
    text += r.to_text() + "----\n" + r.to_json().dump(2) + "\n====\n";
  expect_file("tests/planning/data/fit_report.txt", text);
}

}  // namespace
}  // namespace weft
