// tests/golden/golden_test.cpp: logits, loss, gradients and optimizer steps against PyTorch, at
// every instruction level of this machine, on its GPU, and with the reference kernels.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "graph/portion.h"
#include "model/load.h"
#include "model/stored.h"
#include "tests/backends.h"
#include "tests/engine_step.h"
#include "tests/golden/golden_set.h"
#include "tests/golden/tolerances.h"
#include "train/engine.h"

namespace weft {
namespace {

using Case = std::tuple<std::string, std::string>;  // golden set, kernels

class Golden : public ::testing::TestWithParam<Case> {
 protected:
  GoldenSet set_{std::get<0>(GetParam())};
  const TestBackend backend_ = find_backend(std::get<1>(GetParam()));
  Ranks alone_{Layout{}};

  std::unique_ptr<Engine> engine(const RunConfig& config) {
    auto made = std::make_unique<Engine>(config, set_.model(), &alone_, *backend_.kernels, 2,
                                         backend_.device);
    made->load_weights(set_.folder());
    return made;
  }
};

double relative(double got, double wanted) { return std::abs(got - wanted) / std::abs(wanted); }

double norm_of_difference(const std::vector<float>& got, const std::vector<float>& wanted) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    difference += std::pow(double{got[i]} - wanted[i], 2);
    size += std::pow(double{wanted[i]}, 2);
  }
  return size == 0 ? std::sqrt(difference) : std::sqrt(difference / size);
}

// Of a tensor of the files, which several parameters may fill.
std::vector<float> gradient(const Engine& engine, const FileTensor& tensor, double scale) {
  std::vector<float> whole(static_cast<size_t>(num_elements(tensor.shape)));
  for (const ParameterSpec* p : tensor.parts) {
    const int64_t n = num_elements(p->shape);
    std::vector<float> g(static_cast<size_t>(n));
    engine.executor().device()->read(g.data(), engine.executor().find(p->name + "#grad"), n * 4);
    for_each_run(whole_as_stored(*p), [&](int64_t to, int64_t count, int64_t from) {
      std::copy_n(g.begin() + from, count, whole.begin() + to);
    });
  }
  for (float& v : whole) v = static_cast<float>(v * scale);
  return whole;
}

TEST_P(Golden, LossAndEveryGradient) {
  const Batch batch = set_.batch("", 0);
  const auto e = engine(set_.config(batch.num_rows, batch.padded.target, batch.num_rows));
  const double sum = run_passes(*e, batch).loss.value();
  EXPECT_LT(relative(sum, set_.scalar("loss_sum")), kLossError);
  const std::vector<ParameterSpec> parameters = set_.model().parameters();
  const std::vector<FileTensor> tensors = file_tensors(parameters);
  for (const FileTensor& t : tensors) {
    SCOPED_TRACE(t.name);
    const std::vector<float> g = gradient(*e, t, 1.0 / static_cast<double>(batch.target_tokens));
    if (set_.has("grad." + t.name)) {
      EXPECT_LT(norm_of_difference(g, set_.read<float>("grad." + t.name)), kGradientError);
    } else {
      const std::vector<float> wanted = set_.read<float>("grad_sample." + t.name);
      std::vector<float> sample;
      for (size_t i = 0; i < wanted.size(); ++i) sample.push_back(g[i * 61]);
      EXPECT_LT(norm_of_difference(sample, wanted), kGradientError);
      double squares = 0;
      for (float v : g) squares += double{v} * v;
      EXPECT_LT(relative(std::sqrt(squares), set_.scalar("grad_norm." + t.name)), kGradientError);
    }
  }
  EXPECT_GT(tensors.size(), 10u);
}

// transformers 5 ties every T5's head unless the file holds another one: the set must.
TEST(GoldenSets, T5v11HasAHeadOfItsOwn) {
  const GoldenSet set("t5_v11");
  EXPECT_NE(set.folder().find("lm_head.weight").file, nullptr);
  EXPECT_TRUE(set.has("grad.lm_head.weight"));
  const std::vector<ParameterSpec> all = set.model().parameters();
  EXPECT_TRUE(std::any_of(all.begin(), all.end(),
                          [](const ParameterSpec& p) { return p.name == "lm_head.weight"; }));
}

void load_weights(const GoldenSet& set, Executor* executor, const Graph& graph) {
  executor->fill([&](const auto& open) {
    if (!reads_source(set.model())) set.model().fill_constants(graph, open);
    for (const ParameterSpec& p : set.model().parameters()) {
      if (graph.find(p.name)) load_parameter(set.folder(), p, Dtype::kF32, open(p.name));
    }
  });
}

void fill(Executor* executor, const Batch& batch, const char* name, int64_t count) {
  const auto values = batch.values(name);
  std::copy_n(values.begin(), count, executor->input<int32_t>(name));
}

// The largest difference from PyTorch's logits at all positions, by slow kernels at some.
double worst_logit(const GoldenSet& set, const TestBackend& backend, Executor* executor) {
  const Batch batch = set.batch("", 0);
  const Shape shape = set.info("logits").shape;  // (R', T, V)
  const std::vector<float> wanted = set.read<float>("logits");
  const int64_t B = shape[0], T = shape[1], V = shape[2];
  std::vector<float> logits(static_cast<size_t>(B * V));
  double worst = 0;
  const std::string kernels = backend.kernels->name;
  const bool is_slow = kernels == "ref" || kernels == "cuda_emulated";
  for (int64_t t = 0; t < T; t += is_slow ? 11 : 1) {
    fill(executor, batch, names::kIds, B * T);
    fill(executor, batch, names::kLengths, B);
    if (reads_source(set.model())) fill(executor, batch, names::kSourceLengths, B);
    for (int64_t i = 0; i < B * T; ++i)
      executor->input<int32_t>("positions")[i] = static_cast<int32_t>(i % T);
    for (int64_t b = 0; b < B; ++b) {
      executor->input<int32_t>("starts")[b] = 0;
      executor->input<int32_t>("last")[b] = static_cast<int32_t>(t);
    }
    executor->run_pass({});
    backend.device->read(logits.data(), executor->find("logits"), B * V * 4);
    for (int64_t b = 0; b < B; ++b) {
      for (int64_t v = 0; v < V && t < batch.values(names::kLengths)[static_cast<size_t>(b)]; ++v) {
        worst = std::max(worst, std::abs(double{logits[static_cast<size_t>(b * V + v)]} -
                                         wanted[static_cast<size_t>((b * T + t) * V + v)]));
      }
    }
  }
  return worst;
}

class GoldenLogits : public Golden {
 protected:
  // An encoder-decoder's source goes into the caches first.
  void encode(const Plan& plan, const ArenaLayout& layout, const Arena& arena, ThreadPool* pool) {
    const Batch batch = set_.batch("", 0);
    const int64_t B = set_.info("logits").shape[0];
    Executor encoder(plan, layout, arena, pool);
    load_weights(set_, &encoder, plan.graph);
    fill(&encoder, batch, names::kSourceIds, B * batch.padded.source);
    fill(&encoder, batch, names::kSourceLengths, B);
    encoder.run_pass({});
  }
};

TEST_P(GoldenLogits, OfEveryPosition) {
  const Batch batch = set_.batch("", 0);
  const Shape shape = set_.info("logits").shape;
  const bool has_source = reads_source(set_.model());
  TraceOptions options{shape[0], shape[1], Dtype::kF32, shape[1]};
  options.source_positions = options.max_source_positions = batch.padded.source;
  Graph graph, encoding;
  set_.model().trace_generate(&graph, options);
  if (has_source) set_.model().trace_encode(&encoding, options);
  const PlanOptions plan_options{backend_.kernels, 2, 1};
  const Plan plan = make_plan(std::move(graph), plan_options);
  const Plan encode_plan = has_source ? make_plan(std::move(encoding), plan_options) : Plan{};
  ArenaLayout layout;
  layout.add(plan);
  if (has_source) layout.add(encode_plan);
  const Arena arena(layout.total_bytes(), backend_.device);
  ThreadPool pool(2);
  if (has_source) encode(encode_plan, layout, arena, &pool);
  Executor executor(plan, layout, arena, &pool);
  load_weights(set_, &executor, plan.graph);
  EXPECT_LT(worst_logit(set_, backend_, &executor), kLogitError);
}

// Trains with the batches of a run and compares every loss and norm.
void check_steps(const GoldenSet& set, Engine* e, const std::string& run, double loss_bar,
                 double norm_bar, double spreads) {
  const std::vector<double> losses = set.read<double>(run + ".losses");
  const std::vector<double> norms = set.read<double>(run + ".grad_norms");
  const std::vector<double> other =
      set.read<double>(run + (set.has(run + ".losses_sdpa") ? ".losses_sdpa" : ".losses_fp64"));
  const double lr = set.read<double>(run + ".hyper")[0];
  for (size_t s = 0; s < losses.size(); ++s) {
    const Batch batch = set.batch(run + ".", static_cast<int64_t>(s));
    const double loss = run_passes(*e, batch).mean();
    const double norm = run_update(*e, lr, static_cast<int64_t>(s) + 1);
    const double spread = spreads * relative(other[s], losses[s]);
    EXPECT_LT(relative(loss, losses[s]), std::max(loss_bar, spread)) << run << " step " << s + 1;
    EXPECT_LT(relative(norm, norms[s]), norm_bar) << run << " step " << s + 1;
  }
}

class GoldenSteps : public Golden {
 protected:
  // Trains on the ten batches of the set, each in this many passes.
  void train_ten_steps(int64_t passes) {
    const Batch batch = set_.batch("steps10.", 0);
    const auto e =
        engine(set_.config(batch.num_rows, batch.padded.target, batch.num_rows / passes));
    check_steps(set_, e.get(), "steps10", kStepLoss10, kStepNorm10, 0);
  }
};

TEST_P(GoldenSteps, Ten) { train_ten_steps(1); }
TEST_P(GoldenSteps, TenOfFourPasses) { train_ten_steps(4); }

class GoldenLong : public Golden {};

TEST_P(GoldenLong, TwentySteps) {
  const Batch batch = set_.batch("steps20.", 0);
  const auto e = engine(set_.config(batch.num_rows, batch.padded.target, batch.num_rows));
  check_steps(set_, e.get(), "steps20", kStepLoss20, kStepNorm20, kStepSpreads20);
}

TEST_P(Golden, Bf16Loss) {
  const Batch batch = set_.batch("", 0);
  RunConfig c = set_.config(batch.num_rows, batch.padded.target, batch.num_rows);
  c.train.precision = "bf16";
  for (bool masters : {true, false}) {
    c.train.master_weights = masters;
    const auto e = engine(c);
    const double loss = run_passes(*e, batch).mean();
    EXPECT_LT(relative(loss, set_.scalar("loss_bf16")), kBf16Loss);
  }
}

// Every set at every level; the slow reference on the smallest one, the slow emulated GPU on all
// but the largest.
std::vector<Case> all_cases() {
  std::vector<Case> cases = {{"tiny_llama", "ref"}};
  for (const std::string& name : golden_names()) {
    const bool is_large = name == "llama_256" || name == "llama_rope" || name == "qwen2_gqa";
    for (const std::string& backend : backend_names()) {
      if (backend == "cuda_emulated" && is_large) continue;
      cases.emplace_back(name, backend);
    }
  }
  return cases;
}

std::vector<Case> long_cases() {
  std::vector<Case> cases = all_cases();
  std::erase_if(cases, [](const Case& c) {
    return std::get<1>(c) == "cuda_emulated" && std::get<0>(c) != "tiny_llama";
  });
  return cases;
}

std::string case_name(const ::testing::TestParamInfo<Case>& c) {
  return std::get<0>(c.param) + "_" + std::get<1>(c.param);
}

INSTANTIATE_TEST_SUITE_P(Sets, Golden, ::testing::ValuesIn(all_cases()), case_name);
INSTANTIATE_TEST_SUITE_P(Sets, GoldenSteps, ::testing::ValuesIn(all_cases()), case_name);
INSTANTIATE_TEST_SUITE_P(Sets, GoldenLong, ::testing::ValuesIn(long_cases()), case_name);
INSTANTIATE_TEST_SUITE_P(Sets, GoldenLogits, ::testing::ValuesIn(all_cases()), case_name);

}  // namespace
}  // namespace weft
