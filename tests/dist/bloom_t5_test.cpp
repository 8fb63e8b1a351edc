// tests/dist/bloom_t5_test.cpp: BLOOM and T5 in every layout: heads, feed-forward and vocabulary
// cut, tables of all layers, sources and targets of different lengths, dropout.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "tests/backends.h"
#include "tests/dist/family_run.h"
#include "tests/dist/layouts.h"

namespace weft::testing {
namespace {

constexpr const char* kFamilyNames[] = {"bloom", "t5", "t5_v11"};

const std::vector<Place> kFamilyPlaces = {{2, 2, "zero3"},    {2, 1, "none"},   {4, 1, "zero1", 2},
                                          {2, 1, "zero2", 2}, {2, 1, "zero3"},  {1, 2, "none"},
                                          {1, 4, "none", 2},  {2, 2, "none", 2}};

// A family's runs in one mode and type: rows padded, packed, of changing lengths; learned padding.
std::vector<LayoutRun> family_runs(const char* precision, const char* mode, const Compare& same) {
  std::vector<LayoutRun> runs;
  for (const char* family : kFamilyNames) {
    for (const char* layout : {"pad", "pack", "dynamic", "padding"}) {
      runs.push_back({fmt::format("{}_{}_{}_{}", family, layout, mode, precision),
                      [=] {
                        return make_family_run({family, layout, precision, mode});
                      },
                      same});
    }
  }
  return runs;
}

INSTANTIATE_TEST_SUITE_P(FamiliesFp32, Layouts,
                         ::testing::ValuesIn(layout_cases(
                             family_runs("fp32", "exact", expect_same_bits), kFamilyPlaces)),
                         layout_name);
INSTANTIATE_TEST_SUITE_P(FamiliesBf16, Layouts,
                         ::testing::ValuesIn(layout_cases(
                             family_runs("bf16", "exact", expect_same_bits), kFamilyPlaces)),
                         layout_name);
INSTANTIATE_TEST_SUITE_P(FamiliesFast, Layouts,
                         ::testing::ValuesIn(layout_cases(
                             family_runs("fp32", "fast",
                                         within({.loss = 2e-5, .norm = 1e-4, .eval = 2e-5})),
                             kFamilyPlaces)),
                         layout_name);

// A dp that owns no groups of rows, and leaves of several pieces.
TEST(Families, OtherConstantsOfExactModeHaveTheSameBits) {
  for (const char* family : kFamilyNames) {
    MeshRun run = make_family_run({.family = family, .steps = 2});
    run.config.parallel.exact_dp = 2;
    run.config.parallel.exact_tp = 2;
    const MeshResult one = train_at(run, {1, 1, "none"});
    for (const Place& place : {Place{4, 1, "none"}, {4, 1, "zero1"}, {2, 2, "zero3", 1}}) {
      EXPECT_EQ(join(differences(one, train_at(run, place))), "") << family << text_of(place);
    }
  }
}

// Many steps of one batch: all parameters move, and the loss falls.
TEST(Families, Learn) {
  for (const char* family : kFamilyNames) {
    MeshRun run = make_family_run({.family = family, .mode = "fast", .dropout = 0, .steps = 1});
    MeshRun start = run;
    start.lr = 0;
    run.batches.resize(30, run.batches[0]);
    run.lr = 3e-3;
    const MeshResult learned = train_at(run, {1, 1, "none"});
    EXPECT_LT(learned.losses.back(), 0.8 * learned.losses.front()) << family;
    for (const auto& [name, bytes] : train_at(start, {1, 1, "none"}).tensors) {
      EXPECT_NE(learned.tensors.at(name), bytes) << family << " " << name;
    }
  }
}

// Negative controls: what a packed row's segments see, and what the mask is keyed by.
TEST(FamiliesControl, SegmentsAndRowsMatter) {
  MeshRun run = make_family_run({.family = "t5", .layout = "pack"});
  const MeshResult packed = train_at(run, {2, 1, "none"});
  MeshRun changed = run;
  const auto positions = changed.batches[0].values("source_positions");
  const auto second = std::find(positions.begin() + 1, positions.end(), 0);
  ASSERT_NE(second, positions.end());
  *second = 1;  // its first segment has one more token
  EXPECT_NE(join(differences(packed, train_at(changed, {2, 1, "none"}))), "");
  changed = run;
  changed.batches[0].values<int64_t>("rows")[1] += 1000;
  EXPECT_NE(join(differences(packed, train_at(changed, {2, 1, "none"}))), "");
}

// A tp that divides neither the heads nor the feed-forward width, and what is admissible.
TEST(Families, ATpThatDoesNotFitIsRefused) {
  const auto refused = [](const char* family, int tp) {
    try {
      train_at(make_family_run({.family = family, .mode = "fast", .steps = 1}), {1, tp, "none"});
    } catch (const UserError& e) {
      return std::string(e.what()) + " " + e.hint();
    }
    return std::string("taken");
  };
  EXPECT_EQ(refused("t5", 3),
            "parallel.tp=3 does not divide 4 attention heads, nor 56 feed-forward channels "
            "admissible values of parallel.tp: 1, 2, 4, since 4 attention heads allow 1, 2, 4; 56 "
            "feed-forward channels allow 1, 2, 4, 7, 8, 14, 28, 56");
  EXPECT_NE(refused("bloom", 5).find("does not divide 12 attention heads"), std::string::npos);
  EXPECT_NE(refused("bloom", 5).find("admissible values of parallel.tp: 1, 2, 3, 4, 6, 12"),
            std::string::npos);
}

class FamiliesGpu : public ::testing::TestWithParam<std::string> {
 protected:
  // The emulated one is slow.
  MeshRun run(const char* family, const char* layout, const char* precision, const char* mode) {
    MeshRun made = make_family_run({.family = family,
                                    .layout = layout,
                                    .precision = precision,
                                    .mode = mode,
                                    .steps = GetParam() == "cuda" ? 10 : 2,
                                    .longest = {12, 18}});
    made.backend = GetParam();
    return made;
  }
  // Of the loss, relative: the types have 24, 8 and 11 bits.
  static void expect_as_cpu(MeshRun run, const MeshResult& gpu, const std::string& what) {
    const std::string precision = run.config.train.precision;
    const double bar = precision == "fp32" ? 2e-5 : precision == "bf16" ? 2e-2 : 2e-3;
    run.backend = "";
    if (precision == "fp16") run.config.train.precision = "fp32";  // the CPU has no fp16
    const MeshResult cpu = train_at(run, {1, 1, "none"});
    for (size_t s = 0; s < cpu.losses.size(); ++s)
      EXPECT_NEAR(gpu.losses[s] / cpu.losses[s], 1, bar) << what << " step " << s + 1;
  }
};

TEST_P(FamiliesGpu, ExactModeHasTheSameBitsAndTrainsAsTheCpuDoes) {
  for (const char* family : {"bloom", "t5"}) {
    for (const char* precision : {"fp32", "bf16"}) {
      const std::string what = fmt::format("{} {}", family, precision);
      const MeshRun r = run(family, "pad", precision, "exact");
      const MeshResult one = train_at(r, {1, 1, "none"});
      EXPECT_EQ(join(differences(one, train_at(r, {2, 2, "zero3", 2}))), "") << what;
      expect_as_cpu(r, one, what);
    }
  }
}

TEST_P(FamiliesGpu, FastModeIsCloseInEveryLayoutAndTrainsAsTheCpuDoes) {
  for (const auto& [family, layout, precision] : {std::tuple{"bloom", "pack", "fp32"},
                                                  {"t5_v11", "pack", "fp32"},
                                                  {"t5", "dynamic", "fp32"},
                                                  {"t5_v11", "pad", "fp16"}}) {
    const std::string what = fmt::format("{} {} {}", family, layout, precision);
    const MeshRun r = run(family, layout, precision, "fast");
    const MeshResult one = train_at(r, {1, 1, "none"});
    expect_as_cpu(r, one, what);
    if (std::string(precision) == "fp16") continue;
    const MeshResult other = train_at(r, {2, 2, "zero3", 2});
    for (size_t s = 0; s < one.losses.size(); ++s)
      EXPECT_NEAR(other.losses[s] / one.losses[s], 1, 2e-5) << what;
  }
}

// examples/workloads/5-bloomz-imdb.yaml: fp16, recomputation and ZeRO stage 3 on two ranks, a row
// at a time, rows padded to buckets.
TEST_P(FamiliesGpu, BloomInFp16TrainsAsWorkloadFiveDoes) {
  MeshRun r = run("bloom", "dynamic", "fp16", "fast");
  r.config.train.recompute = "full";
  const MeshResult two = train_at(r, {2, 1, "zero3", 1});
  expect_as_cpu(r, two, "bloom fp16");
  EXPECT_NE(two.losses[0], two.losses[1]);
}

INSTANTIATE_TEST_SUITE_P(Backends, FamiliesGpu, ::testing::ValuesIn(gpu_backend_names()),
                         [](const auto& b) { return b.param; });

}  // namespace
}  // namespace weft::testing
