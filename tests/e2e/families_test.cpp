// tests/e2e/families_test.cpp: every family from the outside: inspect, plan, train, verify, resume,
// generate.
#include <gtest/gtest.h>

#include "tests/e2e/tiny_run.h"
#include "tests/tiny_families.h"

namespace weft::testing {
namespace {

class FamilyRun : public ::testing::TestWithParam<TinyFamily> {
 protected:
  FamilyRun() { run_.write("model/config.json", GetParam().config); }
  Json output_of(const std::vector<std::string>& words) const {
    const Ended ended = run_to_end(words);
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    return parse_json(ended.out, words[0]);
  }
  TinyRun run_;
};

TEST_P(FamilyRun, IsInspectedPlannedAndTrained) {
  const Json seen = output_of({"inspect", (run_ / "model").string(), "--json"});
  EXPECT_EQ(seen.find("cannot_train"), nullptr) << seen.dump();
  const int64_t parameters = seen.at("parameters").as_int();
  EXPECT_GT(parameters, 10000);
  const Json planned = output_of(run_.words("plan", {"parallel.tp=2"}, {"--json"}));
  EXPECT_EQ(planned.at("per_rank").as_array().size(), 2u);
  run_.train_well({"train.steps=4", "data.eval=[" + (run_ / "eval.txt").string() + "]"});
  EXPECT_EQ(metric_texts(run_.dir(), "loss").size(), 4u);
  const Json final_folder = output_of({"inspect", (run_.dir() / "final").string(), "--json"});
  EXPECT_EQ(final_folder.at("parameters").as_int(), parameters);
}

// Rows padded, packed and of several lengths; dropout where the family has it.
TEST_P(FamilyRun, ExactLayoutsAgree) {
  for (const char* layout : {"pad", "dynamic", "pack"}) {
    const Ended ended = run_to_end(
        run_.words("verify", {"parallel.mode=exact", std::string("data.layout=") + layout},
                   {"--layouts", "dp=1; tp=2; dp=2,tp=2,shard=zero3", "--steps", "3", "--out",
                    (run_ / (std::string("verify-") + layout)).string()}));
    EXPECT_EQ(ended.exit_code, 0) << layout << ended.out << ended.err;
  }
}

// From the weights that a run wrote.
TEST_P(FamilyRun, FinalStartsAnotherRun) {
  run_.train_well({"train.steps=2"});
  run_.train_well({"name=more", "train.steps=1", "model.init=pretrained",
                   "model.path=" + (run_.dir() / "final").string()});
  EXPECT_EQ(metric_texts(run_.dir("more"), "loss").size(), 1u);
}

INSTANTIATE_TEST_SUITE_P(All, FamilyRun, ::testing::ValuesIn(tiny_families()),
                         [](const auto& c) { return std::string(c.param.name); });

}  // namespace
}  // namespace weft::testing
