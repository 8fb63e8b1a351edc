// tests/exec/poison_test.cpp: a step reads nothing that it did not write: with the step's region
// and the workspace full of NaN before every pass the results have the same bits.
#include <gtest/gtest.h>

#include <cstring>

#include "base/exact_sum.h"
#include "base/random.h"
#include "exec/executor.h"
#include "kernel/cpu/level.h"
#include "tests/exec/random_graph.h"

namespace weft {
namespace {

using testing::GraphChoice;
using testing::random_choice;
using testing::training_graph;

struct Trained {
  std::vector<std::byte> persistent;
  double loss = 0, norm = 0;
  bool operator==(const Trained&) const = default;
};

// Rows of all lengths: whole, short, empty; in the second step no token of the first row is a
// target.
void feed(const Executor& e, const testing::DecoderShape& s, int step, int pass) {
  for (int64_t i = 0; i < s.B * s.T; ++i) {
    const int64_t b = i / s.T, t = i % s.T,
                  length = (s.T * (b + 1 + pass) / s.B + step) % (s.T + 1);
    e.at<int32_t>("ids")[i] = static_cast<int32_t>((i * 7 + step * 3 + pass) % s.vocab);
    const bool is_target = t + 1 < length && !(step == 1 && b == 0);
    e.at<int32_t>("targets")[i] = is_target ? static_cast<int32_t>((i * 5 + step) % s.vocab) : -1;
    e.at<int32_t>("lengths")[b] = static_cast<int32_t>(length);
  }
}

void fill_persistent(const Executor& e, const Graph& graph) {
  for (const Value& v : graph.values) {
    if (v.kind != ValueKind::kParameter && v.kind != ValueKind::kConstant) continue;
    for (int64_t i = 0; i < num_elements(v.shape); ++i) {
      const auto x = static_cast<float>(
          0.3 * normal_at(1, std::hash<std::string>{}(v.name), static_cast<uint64_t>(i)));
      store_element(e.find(v.name), v.dtype, i, x);
      if (float* master = e.at<float>(v.name + "#master")) master[i] = x;
    }
  }
}

Trained train(const GraphChoice& c, const Kernels& kernels, int passes, int threads, int poison) {
  const Plan plan = make_plan(training_graph(c), {&kernels, threads, passes});
  ArenaLayout layout;
  layout.add(plan);
  const Arena arena(layout.total_bytes());
  ThreadPool pool(threads);
  Executor e(plan, layout, arena, &pool);
  fill_persistent(e, plan.graph);
  const auto spoil = [&](int64_t begin, int64_t bytes) {
    std::memset(arena.data() + begin, poison, static_cast<size_t>(bytes));
  };
  StepScalars s;
  s.clip_norm = 1;
  s.target_tokens = 17;
  for (int step = 0; step < 3; ++step) {
    for (s.pass = 0; s.pass < passes; ++s.pass) {
      feed(e, c.shape, step, s.pass);
      spoil(layout.step_offset(), layout.step_bytes());
      e.run_pass(s);
    }
    // The gradients live between the lists: in the step's region where there is one pass.
    if (passes > 1) spoil(layout.step_offset(), layout.step_bytes());
    s.optimizer = find_optimizer(c.optimizer.name).scalars(c.optimizer, 0.01, step + 1);
    e.run_finish(s);
  }
  Trained t;
  t.persistent.assign(arena.data(), arena.data() + layout.persistent_bytes());
  t.loss = e.at<ExactSum>("loss_sum")->value();
  t.norm = *e.at<double>("grad_norm");
  return t;
}

class Poison : public ::testing::TestWithParam<const char*> {};

TEST_P(Poison, NothingUnwrittenIsRead) {
  const Kernels& kernels = *find_kernels(GetParam());
  std::mt19937 random(77);
  for (int i = 0; i < 16; ++i) {
    const GraphChoice c = random_choice(&random);
    const int passes = 1 + i % 2;
    SCOPED_TRACE(fmt::format("model {}, {} passes, {}", i, passes, dtype_name(c.shape.compute)));
    const Trained clean = train(c, kernels, passes, 1, 0);
    EXPECT_TRUE(std::isfinite(clean.loss) && std::isfinite(clean.norm));
    EXPECT_EQ(clean, train(c, kernels, passes, 1, 0xff));
    if (i % 4 == 0) {
      EXPECT_EQ(clean, train(c, kernels, passes, 2, 0xff)) << "two threads";
    }
  }
}

std::vector<const char*> poison_levels() {
  std::vector<const char*> names = available_levels();
  names.push_back("ref");
  return names;
}
INSTANTIATE_TEST_SUITE_P(Levels, Poison, ::testing::ValuesIn(poison_levels()),
                         [](const auto& p) { return std::string(p.param); });

}  // namespace
}  // namespace weft
