// tests/dist/training_answers_test.cpp: answers between the steps of training, with the weights
// that each layout has at that time.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include "tests/dist/family_run.h"

namespace weft::testing {
namespace {

using Ids = std::vector<int32_t>;

// Weights are large and learned fast, so that answers are varied and change from step to step.
MeshRun answering(const std::string& family, const std::vector<std::string>& freeze) {
  FamilyRun wanted;
  wanted.family = family;
  wanted.steps = 3;
  MeshRun run = make_family_run(wanted);
  run.model.set(family == "bloom" ? "initializer_range" : "initializer_factor",
                family == "bloom" ? 0.5 : 2.0);
  run.model.set("decoder_start_token_id", 3);
  run.lr = 3e-2;
  run.config.model.freeze = freeze;
  run.config.eval.max_new_tokens = 9;
  for (int32_t count : {11, 1, 5, 20, 3}) {
    Ids prompt;
    for (int32_t i = 0; i < count; ++i) prompt.push_back((count * 31 + i * 17) % 203);
    run.prompts.push_back(prompt);
  }
  return run;
}

struct FrozenCase {
  const char* family;
  std::vector<std::string> freeze;
};

void check_layouts(const FrozenCase& c) {
  const MeshRun run = answering(c.family, c.freeze);
  MeshRun silent = run;
  silent.prompts.clear();
  const MeshResult one = train_at(run, {1, 1, "none"}), alone = train_at(silent, {1, 1, "none"});
  EXPECT_EQ(join(differences(one, alone)), "") << "answers change what is trained";
  EXPECT_NE(one.answers[0].front(), one.answers[0].back()) << "the test must learn something";
  for (const Place& place :
       {Place{2, 1, "none"}, Place{2, 1, "zero3"}, Place{2, 2, "zero3"}, Place{4, 1, "zero3", 2}}) {
    const std::string name =
        fmt::format("{} dp {} tp {} {}", c.family, place.dp, place.tp, place.shard);
    const MeshResult got = train_at(run, place);
    EXPECT_EQ(join(differences(got, one)), "") << name;
    for (const auto& of_rank : got.answers) EXPECT_EQ(of_rank, one.answers[0]) << name;
  }
}

TEST(TrainingAnswers, EncoderDecodersAnswerAlikeInEveryLayout) {
  check_layouts({"t5", {}});
  check_layouts({"t5_v11", {}});
}

// What is frozen is in buckets of its own, of which plans of generation read only some.
TEST(TrainingAnswers, FrozenParametersAreReadWhereTrainingHasThem) {
  check_layouts({"bloom", {"*.h.0.*"}});
  check_layouts({"bloom", {"*word_embeddings*", "*.bias"}});
  check_layouts({"t5", {"encoder.*"}});
  check_layouts({"t5_v11", {"shared.weight", "decoder.block.0.layer.1.*"}});
}

// Answers under zero3 need no second copy of the weights.
TEST(TrainingAnswers, Zero3HasNoCopyOfTheWeights) {
  MeshRun run = answering("t5", {});
  const auto bytes_of_answers = [&](const Place& place) {
    MeshRun silent = run;
    silent.prompts.clear();
    return train_at(run, place).arena_bytes[0] - train_at(silent, place).arena_bytes[0];
  };
  EXPECT_LT(bytes_of_answers({2, 1, "zero3"}), bytes_of_answers({2, 1, "zero2"}));
}

}  // namespace
}  // namespace weft::testing
