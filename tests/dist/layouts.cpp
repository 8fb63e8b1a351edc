// tests/dist/layouts.cpp: every layout has the result of one rank.
#include "tests/dist/layouts.h"

#include <fmt/core.h>

#include <cmath>

namespace weft::testing {
namespace {

void expect_near(double got, double wanted, double bar, const std::string& what) {
  EXPECT_NEAR(got, wanted, bar) << what;
}

}  // namespace

void expect_same_bits(const MeshResult& one, const MeshResult& other) {
  EXPECT_EQ(join(differences(one, other)), "");
}

Compare within(const Bars& bars) {
  return [bars](const MeshResult& one, const MeshResult& other) {
    ASSERT_EQ(other.losses.size(), one.losses.size());
    for (size_t s = 0; s < one.losses.size(); ++s) {
      const std::string step = fmt::format("step {}", s + 1);
      expect_near(other.losses[s] / one.losses[s], 1, bars.loss, "loss, " + step);
      if (bars.norm > 0) expect_near(other.norms[s] / one.norms[s], 1, bars.norm, "norm, " + step);
    }
    if (bars.eval > 0) expect_near(other.eval_loss / one.eval_loss, 1, bars.eval, "evaluation");
  };
}

Compare within_absolute(double loss, double relative_norm) {
  return [=](const MeshResult& one, const MeshResult& other) {
    ASSERT_EQ(other.losses.size(), one.losses.size());
    for (size_t s = 0; s < one.losses.size(); ++s) {
      const std::string step = fmt::format("step {}", s + 1);
      expect_near(other.losses[s], one.losses[s], loss, "loss, " + step);
      if (relative_norm > 0)
        expect_near(other.norms[s], one.norms[s], relative_norm * one.norms[s], "norm, " + step);
    }
  };
}

void PrintTo(const LayoutCase& c, std::ostream* out) {
  *out << c.run.name << " " << text_of(c.place);
}

std::vector<LayoutCase> layout_cases(const std::vector<LayoutRun>& runs,
                                     const std::vector<Place>& places) {
  std::vector<LayoutCase> cases;
  for (const LayoutRun& run : runs) {
    for (const Place& place : places) cases.push_back({run, place, cases.empty()});
  }
  return cases;
}

std::string layout_name(const ::testing::TestParamInfo<LayoutCase>& info) {
  const auto& [run, place, is_always] = info.param;
  return fmt::format("{}_dp{}_tp{}_{}_micro{}{}", run.name, place.dp, place.tp, place.shard,
                     place.micro, is_always ? "_always" : "");
}

const MeshResult& train_once(const std::string& name, const MeshRun& run, const Place& place) {
  static std::map<std::string, MeshResult> results;
  const auto found = results.find(name);
  if (found != results.end()) return found->second;
  return results.emplace(name, train_at(run, place)).first->second;
}

TEST_P(Layouts, TrainAsOneRank) {
  const LayoutCase& c = GetParam();
  const MeshRun run = c.run.make();
  const MeshResult& one = train_once(c.run.name, run, {1, 1, "none", c.run.micro});
  if (c.run.check) c.run.check(one);
  c.run.compare(one, train_at(run, c.place));
}

}  // namespace weft::testing
