// tests/dist/generate_test.cpp: generation over several ranks has the tokens of one.
#include "base/error.h"
#include "tests/dist/generate_run.h"
#include "tests/dist/mesh_run.h"
#include "train/weights.h"

namespace weft::testing {
namespace {

SampleOptions greedy() {
  SampleOptions o;
  o.max_new_tokens = 16;
  o.stop_ids = {38, 49, 57};  // so that rows end at different times, and others move
  return o;
}

// 4 heads, 2 key/value heads (of which 4 ranks have copies), 61 ids: no layout cuts them evenly.
TEST(GenerateOnRanks, GreedyTokensEqualThoseOfOneRank) {
  const Prompts prompts = make_prompts(8);
  for (const char* architecture : {"Qwen2ForCausalLM", "LlamaForCausalLM"}) {
    const auto model = tiny_model(architecture, std::string(architecture) == "Qwen2ForCausalLM");
    const Prompts wanted = generate(*model, config_of(1, 1, "none", "fast"), prompts, greedy());
    size_t stopped = 0;
    for (const auto& ids : wanted) stopped += ids.size() < 16;
    EXPECT_TRUE(stopped > 0 && stopped < wanted.size());
    for (const Place& p : {Place{1, 2, "none"}, {1, 4, "none"}, {2, 1, "zero3"}, {2, 2, "zero3"}}) {
      EXPECT_EQ(generate(*model, config_of(p.dp, p.tp, p.shard, "fast"), prompts, greedy()), wanted)
          << architecture << " dp " << p.dp << " tp " << p.tp;
    }
  }
}

TEST(GenerateOnRanks, DrawnTokensEqualThoseOfOneRankInExactMode) {
  const auto model = tiny_model();
  const Prompts prompts = make_prompts(6);
  SampleOptions o = greedy();
  o.temperature = 1.5;
  o.top_p = 0.95;
  o.seed = 4;
  const Prompts wanted = generate(*model, config_of(1, 1, "none", "exact"), prompts, o);
  for (const Place& p : {Place{1, 2, "none"}, {2, 1, "zero3"}, {2, 2, "zero3"}}) {
    EXPECT_EQ(generate(*model, config_of(p.dp, p.tp, p.shard, "exact"), prompts, o), wanted);
  }
  o.seed = 5;
  EXPECT_NE(generate(*model, config_of(1, 2, "none", "exact"), prompts, o), wanted);
}

// The bits of the logits of a prompt.
std::vector<float> logits_of(const Model& model, const RunConfig& config) {
  const Weighed weights(model);
  const Layout layout = resolve_layout(config, model);
  const Prompts prompts = make_prompts(1);
  std::vector<float> made;
  on_ranks(layout, [&](Ranks& ranks) {
    ThreadPool pool(1);
    GenerateOptions sizes{1, 0, Dtype::kF32};
    sizes.rank = generate_rank(model, ranks.layout(), ranks.rank());
    const GeneratePlans plans = make_generate_plans(model, sizes, cpu_kernels(), 1);
    const ArenaLayout places = layout_of(plans);
    const Arena arena(places.total_bytes());
    const Generator fill(model, plans, places, arena, &pool, {ranks.mesh(), nullptr});
    for (const Executor* e : fill.executors())
      Weights(*e, model, false, &pool).load(weights.source);
    const GeneratePlan& last = plans.plans.back();
    HostLogits host(&host_device(), 1, local_vocabulary(last.plan.graph), ranks.mesh().tensor);
    GenerateStep step(last, places, arena, &pool, &host, ranks.mesh());
    const Feed feed{prompts[0]};
    step.run({&feed, 1});
    if (ranks.rank() == 0) made.assign(step.logits(0).begin(), step.logits(0).end());
  });
  return made;
}

TEST(GenerateOnRanks, LogitsHaveTheSameBitsInExactMode) {
  const auto model = tiny_model();
  const std::vector<float> wanted = logits_of(*model, config_of(1, 1, "none", "exact"));
  ASSERT_EQ(wanted.size(), 61u);
  for (const Place& p : {Place{1, 2, "none"}, {2, 1, "zero3"}, {2, 2, "zero3"}}) {
    EXPECT_EQ(logits_of(*model, config_of(p.dp, p.tp, p.shard, "exact")), wanted);
  }
  // Control: fast mode adds in another order on one rank.
  EXPECT_NE(logits_of(*model, config_of(1, 1, "none", "fast")), wanted);
}

TEST(GenerateOnRanks, AnEmulatedGpuHasTheCpusTokens) {
  const auto model = tiny_model();
  const Prompts prompts = make_prompts(4);
  SampleOptions o = greedy();
  o.max_new_tokens = 6;
  const Prompts wanted = generate(*model, config_of(1, 1, "none", "fast"), prompts, o);
  EXPECT_EQ(generate(*model, config_of(1, 2, "none", "fast"), prompts, o, "cuda_emulated"), wanted);
}

TEST(GenerateOnRanks, CopiesOfTheWeightsAreRefused) {
  const auto model = tiny_model();
  const Layout layout = resolve_layout(config_of(2, 1, "zero1", "fast"), *model);
  EXPECT_THROW(check_generate_layout(layout), UserError);
  EXPECT_NO_THROW(check_generate_layout(resolve_layout(config_of(2, 2, "zero3", "fast"), *model)));
  EXPECT_THROW(resolve_layout(config_of(1, 3, "none", "fast"), *model), UserError);
}

}  // namespace
}  // namespace weft::testing
