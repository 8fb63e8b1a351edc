// tests/dist/generate_families_test.cpp: BLOOM and T5: a source that is encoded once, biases of
// cached keys, on one rank and on several, on CPUs and GPUs.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/exact_sum.h"
#include "graph/autodiff.h"
#include "tensor/names.h"
#include "tests/dist/family_run.h"
#include "tests/dist/generate_run.h"
#include "tests/io/temporary_folder.h"
#include "train/weights.h"

namespace weft::testing {
namespace {

using Ids = std::vector<int32_t>;

std::vector<std::string> families() { return {"bloom", "t5", "t5_v11"}; }

// Weights are large, so that the next token depends on all tokens before it.
std::unique_ptr<Model> large_model(const std::string& family) {
  Json config = family_config(family, 0);
  config.set("decoder_start_token_id", 3);
  config.set(family == "bloom" ? "initializer_range" : "initializer_factor",
             family == "bloom" ? 0.5 : 2.0);
  return make_model(config, {});
}

Ids tokens(uint64_t stream, size_t count) {
  Ids ids;
  for (size_t i = 0; i < count; ++i)
    ids.push_back(static_cast<int32_t>(philox(8, stream, i)[0] % 203));
  return ids;
}

Prompts mixed_prompts() {
  Prompts prompts;
  for (const size_t count : {30, 1, 7, 45, 12, 2, 20}) prompts.push_back(tokens(count, count));
  return prompts;
}

SampleOptions greedy(int64_t count) {
  SampleOptions o;
  o.max_new_tokens = count;
  o.stop_ids = {5, 17, 40, 66, 90, 111, 150, 180};  // so that rows end at different times
  return o;
}

class GenerateFamily : public ::testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<Model> model_ = large_model(GetParam());
};

// The sum of the losses of `answer` after `prompt`, by the graph of training.
double loss_of(const Model& model, const Ids& prompt, const Ids& answer) {
  const bool has_source = reads_source(model);
  Ids ids, targets;
  if (has_source) {
    ids = {model.start_id()};
    ids.insert(ids.end(), answer.begin(), answer.end() - 1);
    targets = answer;
  } else {
    ids = prompt;
    ids.insert(ids.end(), answer.begin(), answer.end() - 1);
    targets.assign(prompt.size() - 1, -1);
    targets.insert(targets.end(), answer.begin(), answer.end());
  }
  Graph graph;
  TraceOptions options;
  options.positions = static_cast<int64_t>(ids.size());
  options.source_positions = static_cast<int64_t>(prompt.size());
  add_loss_sum(&graph, model.trace_loss(&graph, options));
  const Plan plan = make_plan(std::move(graph), {&cpu_kernels(), 1, 1});
  ArenaLayout layout;
  layout.add(plan);
  const Arena arena(layout.total_bytes());
  ThreadPool pool(1);
  Executor executor(plan, layout, arena, &pool);
  const Weighed weights(model);
  Weights(executor, model, false, &pool).load(weights.source);
  std::copy(ids.begin(), ids.end(), executor.input<int32_t>(names::kIds));
  std::copy(targets.begin(), targets.end(), executor.input<int32_t>(names::kTargets));
  *executor.input<int32_t>(names::kLengths) = static_cast<int32_t>(ids.size());
  if (has_source) {
    std::copy(prompt.begin(), prompt.end(), executor.input<int32_t>(names::kSourceIds));
    *executor.input<int32_t>(names::kSourceLengths) = static_cast<int32_t>(prompt.size());
  }
  executor.run_pass({});
  return executor.read<ExactSum>(names::kLossSum).value();
}

double loss_of(std::span<const float> logits, int32_t target) {
  double sum = 0;
  for (const float x : logits) sum += std::exp(static_cast<double>(x));
  return std::log(sum) - logits[static_cast<size_t>(target)];
}

// The same by the plans of generation, `chunk` tokens of the answer at a time.
double stepwise_loss(const Model& model, const Ids& prompt, const Ids& answer, bool skips_source) {
  ThreadPool pool(1);
  GenerateOptions sizes{2, 80, Dtype::kF32};
  const GeneratePlans plans = make_generate_plans(model, sizes, cpu_kernels(), 1);
  const ArenaLayout layout = layout_of(plans);
  const Arena arena(layout.total_bytes());
  Generator fill(model, plans, layout, arena, &pool);
  fill.load_parameters(load_random);
  HostLogits host(&host_device(), 2, 203);
  const bool has_source = reads_source(model);
  if (has_source) {
    for (const GeneratePlan& p : plans.encode) {
      if (p.positions < static_cast<int64_t>(prompt.size()) || skips_source) continue;
      EncodeStep encode(p, layout, arena, &pool, {});
      const Ids* source = &prompt;
      encode.run({&source, 1});
      break;
    }
  }
  Ids fed = has_source ? Ids{model.start_id()} : prompt;
  const auto length = static_cast<int64_t>(prompt.size());
  int64_t start = 0;
  double loss = 0;
  for (const int32_t next : answer) {
    for (const GeneratePlan& p : plans.plans) {
      if (p.batch != 2 || p.positions < static_cast<int64_t>(fed.size())) continue;
      GenerateStep step(p, layout, arena, &pool, &host);
      const Feed feed{fed, start, has_source ? length : 0};
      step.run({&feed, 1});
      loss += loss_of(step.logits(0), next);
      break;
    }
    start += static_cast<int64_t>(fed.size());
    fed = {next};
  }
  return loss;
}

TEST_P(GenerateFamily, StepsHaveTheLossOfTraining) {
  const Ids prompt = tokens(1, 37), answer = tokens(2, 30);
  const double wanted = loss_of(*model_, prompt, answer);
  EXPECT_NEAR(stepwise_loss(*model_, prompt, answer, false), wanted, 1e-5 * wanted);
  // Controls: another prompt, and a source that was not encoded.
  EXPECT_GT(std::abs(stepwise_loss(*model_, tokens(3, 37), answer, false) - wanted), 1e-2);
  if (!reads_source(*model_)) return;
  EXPECT_GT(std::abs(stepwise_loss(*model_, prompt, answer, true) - wanted), 1e-2);
}

// Rows enter, move and leave with their sources: a batch equals one by one.
TEST_P(GenerateFamily, ABatchEqualsOneByOne) {
  const Prompts prompts = mixed_prompts();
  ThreadPool pool(2);
  const auto make = [&](int64_t batch) {
    return Generator(*model_, {batch, 80, Dtype::kF32}, cpu_kernels(), &pool, load_random);
  };
  Generator one = make(1);
  Prompts singly;
  for (const Ids& p : prompts) singly.push_back(one.generate({p}, greedy(20))[0]);
  size_t stopped = 0, varied = 0;
  for (const Ids& ids : singly) {
    stopped += ids.size() < 20;
    varied += std::count(ids.begin(), ids.end(), ids[0]) < static_cast<int64_t>(ids.size());
  }
  EXPECT_GT(stopped, 0u);
  EXPECT_LT(stopped, singly.size());
  EXPECT_GT(varied, 2u);
  for (const int64_t batch : {2, 3, 8})
    EXPECT_EQ(make(batch).generate(prompts, greedy(20)), singly);
}

TEST_P(GenerateFamily, RanksHaveTheTokensOfOne) {
  const Prompts prompts = mixed_prompts();
  for (const char* mode : {"fast", "exact"}) {
    const auto at = [&](int dp, int tp, const char* shard) {
      return generate(*model_, config_of(dp, tp, shard, mode), prompts, greedy(12), "", 80);
    };
    const Prompts wanted = at(1, 1, "none");
    EXPECT_EQ(at(1, 2, "none"), wanted) << mode;
    EXPECT_EQ(at(2, 1, "zero3"), wanted) << mode;
    EXPECT_EQ(at(2, 2, "zero3"), wanted) << mode;
  }
}

INSTANTIATE_TEST_SUITE_P(All, GenerateFamily, ::testing::ValuesIn(families()),
                         [](const auto& c) { return c.param; });

using GpuCase = std::tuple<std::string, std::string>;  // backend, family

class GenerateFamilyGpu : public ::testing::TestWithParam<GpuCase> {
 protected:
  std::string backend_ = std::get<0>(GetParam());
  bool is_real_ = backend_ == "cuda";  // the emulated one is slow
  std::unique_ptr<Model> model_ = large_model(std::get<1>(GetParam()));
};

TEST_P(GenerateFamilyGpu, HasTheCpusTokens) {
  const Prompts prompts = is_real_ ? mixed_prompts() : Prompts{tokens(4, 20), tokens(5, 3)};
  const SampleOptions sample = greedy(is_real_ ? 20 : 6);
  ThreadPool pool(2);
  const auto make = [&](const TestBackend& backend) {
    return Generator(*model_, {2, 80, Dtype::kF32}, *backend.kernels, &pool, load_random,
                     backend.device);
  };
  const Prompts wanted = make({&cpu_kernels(), &host_device()}).generate(prompts, sample);
  EXPECT_EQ(make(find_backend(backend_)).generate(prompts, sample), wanted);
}

TEST_P(GenerateFamilyGpu, RanksHaveTheCpusTokens) {
  const Prompts prompts = is_real_ ? mixed_prompts() : Prompts{tokens(5, 3)};
  const SampleOptions sample = greedy(is_real_ ? 12 : 3);
  const Prompts wanted =
      generate(*model_, config_of(1, 1, "none", "fast"), prompts, sample, "", 80);
  EXPECT_EQ(generate(*model_, config_of(1, 2, "none", "fast"), prompts, sample, backend_, 80),
            wanted);
  if (!is_real_) return;
  EXPECT_EQ(generate(*model_, config_of(2, 2, "zero3", "fast"), prompts, sample, backend_, 80),
            wanted);
}

// The names begin with the backend's: tools/gpu.sh selects those of the real one.
INSTANTIATE_TEST_SUITE_P(All, GenerateFamilyGpu,
                         ::testing::Combine(::testing::ValuesIn(gpu_backend_names()),
                                            ::testing::ValuesIn(families())),
                         [](const auto& c) {
                           return std::get<0>(c.param) + "_" + std::get<1>(c.param);
                         });

TEST(GenerateT5, ASourceMayBeLongerThanTheAnswer) {
  const auto model = large_model("t5");
  ThreadPool pool(1);
  GenerateOptions sizes{1, 5, Dtype::kF32};
  sizes.max_source_positions = 70;
  Generator g(*model, sizes, cpu_kernels(), &pool, load_random);
  SampleOptions o;
  o.max_new_tokens = 4;
  EXPECT_EQ(g.generate({tokens(6, 70)}, o)[0].size(), 4u);
  EXPECT_THROW(g.generate({tokens(6, 71)}, o), UserError);
}

TEST(GenerateT5, OthersHaveNoStartToken) { EXPECT_THROW(tiny_model()->start_id(), BugError); }

}  // namespace
}  // namespace weft::testing
