// tests/verify/verify_test.cpp: parsing layouts, comparing runs, order-independent hashes.
#include "verify/verify.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <limits>
#include <sstream>

#include "base/error.h"
#include "tests/io/temporary_folder.h"
#include "train/tensor_hashes.h"
#include "verify/verify_compare.h"
#include "verify/verify_layouts.h"

namespace weft {
namespace {

using testing::TemporaryFolder;

TEST(VerifyLayouts, AreSelfContainedAndKeepTheirOrder) {
  const auto layouts = parse_layouts(" dp=2 ;dp=2, shard=zero3,mode=exact; ");
  ASSERT_EQ(layouts.size(), 2u);
  EXPECT_EQ(layouts[0].name, "dp=2");
  EXPECT_EQ(layouts[1].name, "dp=2,shard=zero3,mode=exact");
  EXPECT_EQ(layouts[1].label, "dp_2_shard_zero3_mode_exact");
  // Later ones win: what the layout does not set is not taken from the run file.
  EXPECT_EQ(layouts[0].sets,
            (std::vector<std::string>{"parallel.dp=1", "parallel.tp=1", "parallel.shard=none",
                                      "train.grad_accum=0", "parallel.dp=2"}));
  EXPECT_EQ(parse_layouts(";dp=1;;tp=2").size(), 2u);
  EXPECT_EQ(parse_layouts("dp=1; threads=1.5")[1].label, "threads_1_5");
  EXPECT_THROW(parse_layouts("dp=2"), UserError);
  EXPECT_THROW(parse_layouts("dp=2; dp=2"), UserError);
  EXPECT_THROW(parse_layouts("dp=2; dp=2,dp=4"), UserError);
}

TEST(VerifyLayouts, AMissingSeparatorIsNamed) {
  const auto message_of = [](const std::string& text) {
    return testing::error_of<UserError>([&] { parse_layouts(text); });
  };
  const std::pair<const char*, const char*> cases[] = {
      {"dp=1; dp=2 tp=2", "\"dp=2tp=2\": a comma is missing before tp="},
      {"dp=1; dp=2,shard=zero1 mode=exact", "a comma is missing before mode="},
      {"dp=1; tp=2 exact_tp=2", "a comma is missing before exact_tp="},
      {"dp=1 dp=2; tp=2", "a semicolon is missing before dp="},
      {"dp=1, dp=2", "a semicolon ends a layout"},
      {"dp=1", "--layouts gives 1 layout, but"},
      {"", "--layouts gives 0 layouts, but"},
      {"dp=1; tp=", "\"tp=\" is not key=value"},
      {"dp=1; tp", "\"tp\" is not key=value"},
      {"dp=1; dp=2,", "\"\" is not key=value"},
      {"dp=1; pd=2", "unknown key \"pd\""},
      {"dp=1; dp=1", "layout \"dp=1\" is given twice"},
  };
  for (const auto& [text, part] : cases) {
    EXPECT_NE(message_of(text).find(part), std::string::npos) << text << "\n" << message_of(text);
  }
}

TEST(ElementHash, DependsOnBitsAndPosition) {
  EXPECT_NE(element_hash(1, 0), element_hash(0, 1));
  EXPECT_NE(element_hash(1, 0) + element_hash(2, 1), element_hash(2, 0) + element_hash(1, 1));
  EXPECT_NE(element_hash(0, 5), element_hash(0x80000000u, 5));  // 0 and -0
}

VerifyRun run_of(const std::vector<double>& losses) {
  VerifyRun run;
  for (size_t i = 0; i < losses.size(); ++i) {
    run.steps.push_back({static_cast<int64_t>(i) + 1, losses[i], 1.0});
  }
  return run;
}

TEST(CompareRuns, StatisticsAndBars) {
  const VerifyRun base = run_of({4, 3, 2, 2.5}), run = run_of({4, 3.5, 2, 2.25});
  VerifyResult r = compare_runs(base, run, choose_bars(false, false, 0.5, std::nullopt));
  EXPECT_TRUE(r.ok());
  EXPECT_EQ(r.initial, 4);
  EXPECT_EQ(r.final, 2.25);
  EXPECT_EQ(r.min, 2);
  EXPECT_EQ(r.mean, 2.9375);
  EXPECT_EQ(r.max_diff, 0.5);
  EXPECT_EQ(r.mean_diff, 0.1875);
  EXPECT_EQ(r.final_diff, 0.25);
  EXPECT_EQ(r.losses_different, 2);
  EXPECT_FALSE(r.first_bad_step);
  r = compare_runs(base, run, choose_bars(false, false, 0.49, std::nullopt));
  EXPECT_FALSE(r.ok());
  EXPECT_EQ(r.first_bad_step, 2);
  r = compare_runs(base, run, choose_bars(false, false, 1, 0.1));
  EXPECT_FALSE(r.ok());
  EXPECT_EQ(r.first_bad_step, 2);
}

TEST(CompareRuns, DefaultBars) {
  const Bars fp32 = choose_bars(false, false, {}, {}), bf16 = choose_bars(false, true, {}, {}),
             exact = choose_bars(true, true, {}, {});
  EXPECT_EQ(fp32.max, 1e-5);
  EXPECT_FALSE(fp32.mean);
  EXPECT_EQ(bf16.max, 5e-3);
  EXPECT_EQ(bf16.mean, 1e-3);
  EXPECT_EQ(fp32.norm, 1e-4);
  EXPECT_EQ(bf16.norm, 5e-2);
  EXPECT_EQ(fp32.gradient, 1e-2);
  EXPECT_EQ(bf16.gradient, 0.3);
  EXPECT_FALSE(exact.norm || exact.gradient);
  const Bars given = choose_bars(false, false, 0.5, {});  // an explicit max this large allows more
  EXPECT_FALSE(given.norm || given.gradient);
  for (const double stricter : {0.0, 1e-7, 1e-5}) {
    const Bars held = choose_bars(false, false, stricter, {});
    EXPECT_EQ(held.max, stricter);
    EXPECT_EQ(held.norm, 1e-4);
    EXPECT_EQ(held.gradient, 1e-2);
  }
  EXPECT_TRUE(exact.bits);
  EXPECT_FALSE(exact.max || exact.mean || fp32.bits);
}

// A doubled gradient shows in its step's norm, and hardly in the losses.
TEST(CompareRuns, NormsHaveTheirOwnTolerance) {
  const Bars bars = choose_bars(false, false, {}, {});
  const VerifyRun base = run_of({4, 3, 2, 2.5});
  VerifyRun run = base;
  run.steps[2].grad_norm = 1 + 5e-5;
  EXPECT_TRUE(compare_runs(base, run, bars).ok());
  run.steps[2].grad_norm = 1 + 1e-3;
  run.steps[3].grad_norm = 1 - 3e-4;
  VerifyResult r = compare_runs(base, run, bars);
  EXPECT_FALSE(r.ok());
  EXPECT_EQ(r.first_bad_step, 3);
  EXPECT_NEAR(r.norm_diff, 1e-3, 2e-6);
  ASSERT_EQ(r.broken.size(), 1u);
  EXPECT_EQ(r.broken[0], "gradient norms differ by 0.000999 of themselves, over 0.0001");
  EXPECT_EQ(r.max_diff, 0);
  run = base;
  run.steps[3].grad_norm.reset();  // fp16: a step that overflowed
  EXPECT_TRUE(compare_runs(base, run, bars).ok());
  run.steps[3].grad_norm = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(compare_runs(base, run, bars).ok());
}

// Near convergence the norm shrinks but its rounding error does not.
TEST(CompareRuns, ATinyNormIsMeasuredAgainstTheLargestBefore) {
  const Bars bars = choose_bars(false, false, {}, {});
  VerifyRun base = run_of({4, 3, 2, 2.5});
  base.steps[3].grad_norm = 1e-4;
  VerifyRun run = base;
  run.steps[3].grad_norm = 1e-4 + 5e-7;
  VerifyResult r = compare_runs(base, run, bars);
  EXPECT_TRUE(r.ok());
  EXPECT_NEAR(r.norm_diff, 5e-5, 1e-7);
  run.steps[3].grad_norm = 1e-4 + 5e-6;
  EXPECT_EQ(compare_runs(base, run, bars).first_bad_step, 4);
}

TEST(CompareRuns, MissingValuesDiffer) {
  const Bars wide = choose_bars(false, false, 100, {});
  const VerifyRun base = run_of({4, 3, 2});
  EXPECT_FALSE(compare_runs(base, run_of({4, 3}), wide).ok());
  VerifyRun null = base;
  null.steps[1].loss.reset();
  EXPECT_EQ(compare_runs(base, null, wide).first_bad_step, 2);
  EXPECT_TRUE(compare_runs(null, null, wide).ok());
  VerifyRun nan = base;
  nan.steps[2].loss = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(compare_runs(base, nan, wide).ok());
  VerifyRun evaluated = base;
  evaluated.evals.emplace_back(2.0);
  EXPECT_FALSE(compare_runs(base, evaluated, wide).ok());
  // Exact mode without hashes proves nothing.
  EXPECT_FALSE(compare_runs(base, base, choose_bars(true, false, {}, {})).ok());
}

class HashedRuns : public ::testing::Test {
 protected:
  VerifyRun hashed(const std::string& name, const std::string& lines) const {
    std::ofstream(folder_ / name) << lines;
    VerifyRun run = run_of({4, 3});
    run.hashes = folder_ / name;
    return run;
  }
  VerifyResult compare(const VerifyRun& run) const {
    return compare_runs(hashed("base", kBase), run, choose_bars(true, false, {}, {}));
  }
  const std::string kBase =
      "{\"step\": 0, \"tensors\": {\"a\": \"1\", \"b\": \"1\"}}\n"
      "{\"step\": 1, \"tensors\": {\"a#grad\": \"5\", \"a\": \"2\", \"b\": \"2\"}}\n"
      "{\"step\": 2, \"tensors\": {\"a#grad\": \"6\", \"a\": \"3\", \"b\": \"3\"}}\n";
  std::string change(const std::string& from, const std::string& to) const {
    std::string text = kBase;
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos);
    return text.replace(at, from.size(), to);
  }
  TemporaryFolder folder_;
};

TEST_F(HashedRuns, NameTheFirstTensor) {
  EXPECT_TRUE(compare(hashed("same", kBase)).ok());
  VerifyResult r = compare(hashed("start", change("\"b\": \"1\"", "\"b\": \"9\"")));
  EXPECT_EQ(r.first_bad_step, 0);
  EXPECT_EQ(r.tensor, "b");
  EXPECT_FALSE(r.ok());  // though the end is the same
  r = compare(hashed("end", change("\"a\": \"3\", \"b\": \"3\"", "\"a\": \"8\", \"b\": \"9\"")));
  EXPECT_EQ(r.first_bad_step, 2);
  EXPECT_EQ(r.tensor, "a");
  EXPECT_EQ(r.tensors_different, (std::vector<std::string>{"a", "b"}));
  r = compare(hashed("lacks", change(", \"b\": \"3\"", "")));
  EXPECT_EQ(r.tensors_different, (std::vector<std::string>{"b"}));
  // A norm that differs earlier: its step, and no tensor.
  VerifyRun run = hashed("norm", change("\"a\": \"3\"", "\"a\": \"8\""));
  run.steps[0].grad_norm = 1.5;
  r = compare(run);
  EXPECT_EQ(r.first_bad_step, 1);
  EXPECT_FALSE(r.tensor);
}

// Other constants: bits may differ, and no tolerance is exceeded.
TEST_F(HashedRuns, NoStepIsBadWithinTolerances) {
  const VerifyRun base = hashed("base", kBase);
  const Bars bars = choose_bars(false, false, {}, {});
  VerifyResult r = compare_runs(base, hashed("on", change("\"b\": \"2\"", "\"b\": \"9\"")), bars);
  EXPECT_TRUE(r.ok());
  EXPECT_FALSE(r.first_bad_step);
  EXPECT_FALSE(r.tensor);
  r = compare_runs(base, hashed("start", change("\"b\": \"1\"", "\"b\": \"9\"")), bars);
  EXPECT_FALSE(r.ok());  // all start with the same weights
  EXPECT_EQ(r.first_bad_step, 0);
  EXPECT_EQ(r.tensor, "b");
}

// Fast mode: a doubled gradient is detected by its own norm, however small its share.
TEST_F(HashedRuns, AGradientIsCheckedAgainstItsOwnNorm) {
  const auto lines = [](const std::string& second) {
    return "{\"step\": 0, \"tensors\": {\"a\": \"1\"}}\n"
           "{\"step\": 1, \"norms\": {\"a#grad\": 10.0, \"b#grad\": 0.05, \"c#grad\": 1e-6}}\n"
           "{\"step\": 2, \"norms\": {\"a#grad\": 10.0, " +
           second + "}}\n";
  };
  const Bars bars = choose_bars(false, false, {}, {});
  const VerifyRun base = hashed("base", lines("\"b#grad\": 0.05, \"c#grad\": 1e-6"));
  // Negligible gradients may differ arbitrarily.
  VerifyResult r =
      compare_runs(base, hashed("sound", lines("\"b#grad\": 0.0501, \"c#grad\": 7e-5")), bars);
  EXPECT_TRUE(r.ok());
  EXPECT_FALSE(r.first_bad_step || r.tensor);
  EXPECT_NEAR(r.gradient_diff.value(), 7e-3, 1e-3);
  EXPECT_NE(r.bars.to_text().find("gradients 0.01"), std::string::npos);
  r = compare_runs(base, hashed("doubled", lines("\"b#grad\": 0.1, \"c#grad\": 1e-6")), bars);
  EXPECT_FALSE(r.ok());
  EXPECT_EQ(r.first_bad_step, 2);
  EXPECT_EQ(r.tensor, "b#grad");
  ASSERT_EQ(r.broken.size(), 1u);
  EXPECT_EQ(r.broken[0], "b#grad of step 2 differs by 0.5 of its norm, over 0.01");
  EXPECT_TRUE(compare_runs(base, hashed("absent", lines("\"c#grad\": 1e-6")), bars).ok());
  r = compare_runs(base, hashed("zero", lines("\"b#grad\": 0.0, \"c#grad\": 1e-6")), bars);
  EXPECT_EQ(r.tensor, "b#grad");
  EXPECT_EQ(r.gradient_diff, 1);
}

std::string norm_line(int64_t step, const std::string& a, const std::string& b) {
  return fmt::format("{{\"step\": {}, \"norms\": {{\"a#grad\": {}, \"b#grad\": {}}}}}\n", step, a,
                     b);
}

// fp16: an overflowed step has no line, or one without numbers; the others are still compared.
TEST_F(HashedRuns, NormsAreComparedByStep) {
  const Bars bars = choose_bars(false, true, {}, {});
  const std::string start = "{\"step\": 0, \"tensors\": {\"a\": \"1\"}}\n";
  const std::string first = norm_line(1, "1.0", "0.5"), third = norm_line(3, "1.0", "0.5");
  const VerifyRun base = hashed("base", start + first + norm_line(2, "3.0", "0.5") + third);
  VerifyResult r = compare_runs(base, hashed("skips", start + first + third), bars);
  EXPECT_TRUE(r.ok());
  EXPECT_EQ(r.gradient_diff, 0);
  r = compare_runs(base, hashed("null", start + first + norm_line(2, "null", "0.5") + third), bars);
  EXPECT_TRUE(r.ok());
  EXPECT_EQ(r.gradient_diff, 0);
  r = compare_runs(base, hashed("wrong", start + first + norm_line(3, "1.0", "1.0")), bars);
  EXPECT_EQ(r.first_bad_step, 3);
  EXPECT_EQ(r.tensor, "b#grad");
  // Near convergence, relative to the largest norm before: a thousandth of it is negligible.
  const std::string tiny = norm_line(3, "1e-4", "1e-6");
  r = compare_runs(hashed("base", start + first + tiny),
                   hashed("end", start + first + norm_line(3, "1.01e-4", "2e-6")), bars);
  EXPECT_TRUE(r.ok());
  EXPECT_LT(r.gradient_diff.value(), 1e-2);
}

// A tolerance that was never applied is not reported as met.
TEST_F(HashedRuns, WithoutNormsThereIsNoGradientTolerance) {
  const Bars bars = choose_bars(false, false, {}, {});
  const VerifyResult r = compare_runs(hashed("base", kBase), hashed("run", kBase), bars);
  EXPECT_TRUE(r.ok());
  EXPECT_FALSE(r.gradient_diff || r.bars.gradient);
  EXPECT_EQ(r.bars.to_text().find("gradients"), std::string::npos) << r.bars.to_text();
  EXPECT_NE(r.bars.to_text().find("norms"), std::string::npos) << r.bars.to_text();
}

// A tensor that diverged and recovered is counted: people read the column, not the step.
TEST_F(HashedRuns, TensorsCountAtAnyStep) {
  VerifyResult r = compare(hashed("same", kBase));
  EXPECT_EQ(r.num_tensors, 3);  // a, b and the gradient, which the start lacks
  EXPECT_TRUE(r.tensors_different.empty());
  r = compare(hashed("start", change("\"b\": \"1\"", "\"b\": \"9\"")));
  EXPECT_EQ(r.tensors_different, std::vector<std::string>{"b"});
  EXPECT_EQ(r.different_at_end, 0);
  ASSERT_FALSE(r.broken.empty());
  EXPECT_NE(r.broken[0].find("1 of 3 tensors"), std::string::npos) << r.broken[0];
  EXPECT_NE(r.broken[0].find("0 of them at the last step"), std::string::npos) << r.broken[0];
  std::string both = change("\"b\": \"2\"", "\"b\": \"9\"");
  both.replace(both.find("\"a#grad\": \"6\""), 13, "\"a#grad\": \"7\"");
  r = compare(hashed("both", both));
  EXPECT_EQ(r.tensors_different, (std::vector<std::string>{"b", "a#grad"}));
  EXPECT_EQ(r.different_at_end, 1);
  EXPECT_EQ(r.first_bad_step, 1);
  EXPECT_EQ(r.tensor, "b");
}

// The fields of a layout's line in the table of bits: name, losses, norms, evals, tensors, eval
// loss.
std::vector<std::string> bits_line(const VerifyReport& report, const std::string& name) {
  const std::string text = report.to_text();
  std::istringstream lines(text.substr(std::min(text.find("different in bits"), text.size())));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::vector<std::string> found{std::istream_iterator<std::string>(words), {}};
    if (!found.empty() && found[0] == name) return found;
  }
  return {};
}

// Only the start of a fast-mode layout is hashed: 0/3 would look like agreement.
TEST_F(HashedRuns, TheTableClaimsNoTensorsThatWereNotCompared) {
  VerifyRun base = hashed("base", kBase), fast = base;
  fast.hashes = hashed("fast", kBase.substr(0, kBase.find('\n') + 1)).hashes;
  VerifyRun exact = hashed("exact", change("\"b\": \"2\"", "\"b\": \"9\""));
  base.name = "base";
  exact.name = "exact";
  fast.name = "fast";
  VerifyReport report;
  const Bars bits = choose_bars(true, false, {}, {}), wide = choose_bars(false, false, {}, {});
  report.layouts = {compare_runs(base, base, bits), compare_runs(base, exact, bits),
                    compare_runs(base, fast, wide)};
  using Words = std::vector<std::string>;
  EXPECT_EQ(bits_line(report, "exact"), (Words{"exact", "0/2", "0/2", "-", "1/3", "-"}));
  EXPECT_EQ(bits_line(report, "fast"), (Words{"fast", "0/2", "0/2", "-", "-", "-"}));
  EXPECT_NE(report.to_text().find("first at step 1, tensor b"), std::string::npos);
}

VerifyResult differs_in(size_t tensors) {
  VerifyResult r;
  r.name = "tp=2";
  r.bars = choose_bars(true, false, {}, {});
  for (size_t i = 0; i < tensors; ++i) r.tensors_different.push_back(fmt::format("t{}", i));
  if (tensors > 0) r.broken = {"some differ"};
  return r;
}

std::string text_of(const VerifyResult& second) {
  VerifyReport report;
  report.layouts = {differs_in(0), second};
  return report.to_text();
}

TEST(VerifyReport, NamesEightTensorsAndCountsTheRest) {
  EXPECT_NE(text_of(differs_in(8)).find("tensors: t0 t1 t2 t3 t4 t5 t6 t7\n"), std::string::npos);
  EXPECT_NE(text_of(differs_in(9)).find("t6 t7 and 1 more (verify.json)\n"), std::string::npos);
  EXPECT_EQ(text_of(differs_in(0)).find("tensors:"), std::string::npos);
}

TEST(VerifyReport, ReportsTheFirstDifference) {
  VerifyResult r = differs_in(1);
  r.first_bad_step = 3;
  EXPECT_NE(text_of(r).find("first at step 3\n"), std::string::npos) << text_of(r);
  r.tensor = "a";
  EXPECT_NE(text_of(r).find("first at step 3, tensor a\n"), std::string::npos);
  r.first_bad_step = 0;
  EXPECT_NE(text_of(r).find("first in the initial weights, tensor a\n"), std::string::npos);
  r.bars = choose_bars(false, false, {}, {});
  r.first_bad_step = 3;
  EXPECT_NE(text_of(r).find("first at step 3, and farthest at the end is a\n"), std::string::npos);
  r.tensor = "a#grad";
  EXPECT_NE(text_of(r).find("first at step 3, tensor a#grad\n"), std::string::npos);
  EXPECT_EQ(text_of(r).find("tensors:"), std::string::npos);  // hashes that may differ
  EXPECT_EQ(text_of(r).find("different in bits"), std::string::npos);
  EXPECT_NE(text_of(r).find("FAILED  tp=2"), std::string::npos);
  EXPECT_NE(text_of(differs_in(0)).find("all layouts agree"), std::string::npos);
}

TEST_F(HashedRuns, ShortFilesDoNotPass) {
  const std::string first = kBase.substr(0, kBase.find('\n') + 1);
  EXPECT_FALSE(compare(hashed("short", first)).ok());
  EXPECT_FALSE(compare(hashed("torn", kBase.substr(0, kBase.size() - 3))).ok());
}

}  // namespace
}  // namespace weft
