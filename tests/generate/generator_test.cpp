// tests/generate/generator_test.cpp: the cache does not change logits, the batch does not change
// tokens.
#include "generate/generator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "tests/generate/tiny_model.h"

namespace weft {
namespace {

using testing::load_random;
using testing::make_prompts;
using testing::tiny_model;
using Ids = std::vector<int32_t>;

class GeneratorTest : public ::testing::Test {
 protected:
  std::unique_ptr<Model> model_ = tiny_model();
  ThreadPool pool_{2};
  Generator make(int64_t max_batch, Dtype compute = Dtype::kF32) {
    return Generator(*model_, {max_batch, 0, compute}, ref_kernels(), &pool_, load_random);
  }
};

// One token per row can be fed for any number of rows; many at once only where they fit.
TEST_F(GeneratorTest, EveryBatchHasAPlanOfOnePosition) {
  for (const int64_t max_batch : {1, 2, 64, 1500}) {
    const GeneratePlans made =
        make_generate_plans(*model_, {max_batch, 0, Dtype::kF32}, ref_kernels(), 1);
    std::map<int64_t, std::vector<int64_t>> positions;  // by batch
    for (const GeneratePlan& p : made.plans) positions[p.batch].push_back(p.positions);
    EXPECT_TRUE(positions.contains(1) && positions.contains(max_batch)) << max_batch;
    EXPECT_EQ(positions.rbegin()->first, max_batch);
    for (const auto& [batch, list] : positions) {
      EXPECT_EQ(list.front(), 1) << batch;
      EXPECT_TRUE(list.size() == 1 || batch * list.back() <= 1024) << batch;
    }
    EXPECT_GT(positions.at(1).back(), 1);
  }
  EXPECT_THROW(make_generate_plans(*model_, {0, 0, Dtype::kF32}, ref_kernels(), 1), BugError);
}

TEST_F(GeneratorTest, LogitsOfAWholePromptEqualThoseOfSingleSteps) {
  const GeneratePlans plans = make_generate_plans(*model_, {2, 0, Dtype::kF32}, ref_kernels(), 2);
  const ArenaLayout layout = layout_of(plans);
  const Arena arena(layout.total_bytes());
  HostLogits host(&host_device(), 2, 61);
  Generator fill(*model_, plans, layout, arena, &pool_);
  fill.load_parameters(load_random);
  std::map<int64_t, std::unique_ptr<GenerateStep>> by_positions;  // of batch 2
  for (const GeneratePlan& p : plans.plans) {
    if (p.batch != 2) continue;
    by_positions[p.positions] = std::make_unique<GenerateStep>(p, layout, arena, &pool_, &host);
  }
  const Ids tokens = make_prompts(1)[0];
  ASSERT_GT(tokens.size(), 20u);
  // Row 1 gets one token per step; row 0 is idle.
  std::vector<std::vector<float>> stepwise;
  for (size_t t = 0; t < tokens.size(); ++t) {
    const Feed feeds[] = {{}, {{&tokens[t], 1}, static_cast<int64_t>(t)}};
    by_positions[1]->run(feeds);
    const auto logits = by_positions[1]->logits(1);
    stepwise.emplace_back(logits.begin(), logits.end());
  }
  // Row 0 gets the first t + 1 tokens at once.
  for (size_t t = 0; t < tokens.size(); t += 7) {
    const Feed feeds[] = {{{tokens.data(), t + 1}, 0}};
    by_positions[256]->run(feeds);
    const auto logits = by_positions[256]->logits(0);
    for (size_t v = 0; v < logits.size(); ++v) {
      ASSERT_NEAR(logits[v], stepwise[t][v], 1e-5) << "position " << t << ", id " << v;
    }
  }
  // Negative control: one position too few in the cache is detected.
  const Feed feeds[] = {{}, {{&tokens.back(), 1}, static_cast<int64_t>(tokens.size()) - 2}};
  by_positions[1]->run(feeds);
  float largest = 0;
  for (size_t v = 0; v < stepwise.back().size(); ++v) {
    largest = std::max(largest, std::abs(by_positions[1]->logits(1)[v] - stepwise.back()[v]));
  }
  EXPECT_GT(largest, 1e-2);
}

TEST_F(GeneratorTest, ABatchEqualsOneByOne) {
  const std::vector<Ids> prompts = make_prompts(19);
  SampleOptions o;
  o.max_new_tokens = 20;
  o.stop_ids = {3, 17, 40};  // so that rows end at different times
  Generator one = make(1);
  std::vector<Ids> singly;
  for (const Ids& p : prompts) singly.push_back(one.generate({p}, o)[0]);
  size_t stopped = 0;
  for (const Ids& ids : singly) stopped += ids.size() < 20;
  EXPECT_GT(stopped, 2u);
  EXPECT_LT(stopped, 19u);
  for (const int64_t batch : {2, 5, 64}) EXPECT_EQ(make(batch).generate(prompts, o), singly);
}

TEST_F(GeneratorTest, SampledTokensDoNotDependOnTheBatch) {
  const std::vector<Ids> prompts = make_prompts(9);
  SampleOptions o;
  o.max_new_tokens = 12;
  o.temperature = 1.5;
  o.top_k = 20;
  o.top_p = 0.95;
  o.seed = 11;
  const auto wide = make(8).generate(prompts, o);
  EXPECT_EQ(wide, make(3).generate(prompts, o));
  o.seed = 12;
  EXPECT_NE(wide, make(8).generate(prompts, o));
}

TEST_F(GeneratorTest, StopsWithTheStopTokenIncluded) {
  Generator g = make(1);
  SampleOptions o;
  o.max_new_tokens = 10;
  const Ids free = g.generate({{1, 2, 3}}, o)[0];
  ASSERT_EQ(free.size(), 10u);
  o.stop_ids = {free[4]};
  const size_t first =
      static_cast<size_t>(std::find(free.begin(), free.end(), free[4]) - free.begin());
  EXPECT_EQ(g.generate({{1, 2, 3}}, o)[0],
            Ids(free.begin(), free.begin() + static_cast<std::ptrdiff_t>(first) + 1));
  o.max_new_tokens = 0;
  EXPECT_EQ(g.generate({{1, 2, 3}}, o)[0], Ids{});
  EXPECT_EQ(g.generate({}, o), std::vector<Ids>{});
}

TEST_F(GeneratorTest, StopsAtTheModelsPositions) {
  Generator g = make(2);
  SampleOptions o;
  o.max_new_tokens = 1000;
  ::testing::internal::CaptureStderr();
  const auto got = g.generate({Ids(90, 5), Ids(95, 5)}, o);
  EXPECT_EQ(got[0].size(), 7u);  // 96 that were fed, and one that was not
  EXPECT_EQ(got[1].size(), 2u);
  o.max_new_tokens = 2;
  g.generate({Ids(3, 5), Ids(96, 5)}, o);
  g.generate({Ids(95, 5)}, o);  // no warning
  const std::string text = ::testing::internal::GetCapturedStderr();
  const size_t both =
      text.find("2 of 2 continuations stopped because they reached the limit of 96 positions");
  const size_t one =
      text.find("1 of 2 continuations stopped because they reached the limit of 96 positions");
  EXPECT_NE(both, std::string::npos) << text;
  EXPECT_NE(one, std::string::npos) << text;
  EXPECT_EQ(text.find("0 of"), std::string::npos) << text;
  EXPECT_EQ(g.generate({Ids(96, 5)}, o)[0].size(), 1u);
  EXPECT_THROW(g.generate({Ids(97, 5)}, o), UserError);
}

TEST_F(GeneratorTest, BadPromptsAreRefused) {
  Generator g = make(1);
  EXPECT_THROW(g.generate({{}}, {}), UserError);
  EXPECT_THROW(g.generate({{61}}, {}), UserError);
  EXPECT_THROW(g.generate({{-1}}, {}), UserError);
}

TEST_F(GeneratorTest, EventsReportEveryTokenInOrder) {
  const std::vector<Ids> prompts = make_prompts(7);
  std::vector<Ids> heard(prompts.size()), ended(prompts.size());
  GenerateEvents events;
  events.on_token = [&](size_t p, int32_t id) { heard[p].push_back(id); };
  events.on_end = [&](size_t p, const Ids& ids) { ended[p] = ids; };
  SampleOptions o;
  o.max_new_tokens = 6;
  const auto got = make(3).generate(prompts, o, events);
  EXPECT_EQ(heard, got);
  EXPECT_EQ(ended, got);
}

// As in the trainer: its own plan and these in one arena, one copy of the weights.
TEST_F(GeneratorTest, SharesWeightsWithAnotherPlan) {
  Graph graph;
  model_->trace_loss(&graph, {2, 8, Dtype::kF32, 0});
  const Plan loss = make_plan(std::move(graph), {&ref_kernels(), 2, 1});
  const GeneratePlans plans = make_generate_plans(*model_, {4, 0, Dtype::kF32}, ref_kernels(), 2);
  ArenaLayout layout;
  layout.add(loss);
  for (const GeneratePlan& p : plans.plans) layout.add(p.plan);
  const Arena arena(layout.total_bytes());
  const Executor trainer(loss, layout, arena, &pool_);
  Generator g(*model_, plans, layout, arena, &pool_);
  for (const ParameterSpec& spec : model_->parameters()) {
    load_random(spec, Dtype::kF32, trainer.find(spec.name));
  }
  SampleOptions o;
  o.max_new_tokens = 8;
  const std::vector<Ids> prompts = make_prompts(5);
  EXPECT_EQ(g.generate(prompts, o), make(4).generate(prompts, o));
}

TEST_F(GeneratorTest, Bf16RunsToo) {
  SampleOptions o;
  o.max_new_tokens = 5;
  EXPECT_EQ(make(2, Dtype::kBf16).generate(make_prompts(3), o)[2].size(), 5u);
}

}  // namespace
}  // namespace weft
