// tests/train/lengths_test.cpp: packed rows equal separate rows; shorter plans equal the longest.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "tests/batch_lists.h"
#include "tests/engine_step.h"
#include "train/engine.h"

namespace weft {
namespace {

std::unique_ptr<Model> small_qwen() {
  return make_model(parse_json(R"({"architectures": ["Qwen2ForCausalLM"], "hidden_size": 32,
      "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
      "num_key_value_heads": 2, "vocab_size": 61, "initializer_range": 0.2})",
                               "config"),
                    {});
}

using Rows = std::vector<std::vector<int32_t>>;

Rows random_rows(const std::vector<int>& lengths, unsigned seed) {
  std::mt19937 random(seed);
  Rows rows;
  for (const int length : lengths) {
    std::vector<int32_t> row(static_cast<size_t>(length));
    for (int32_t& id : row) id = static_cast<int32_t>(random() % 61);
    rows.push_back(row);
  }
  return rows;
}

// Each line of `packed` is one row of the batch: its segments, as indices into rows.
Batch batch_of(const Rows& rows, const std::vector<std::vector<size_t>>& packed, int64_t T) {
  Batch b;
  testing::BatchLists lists;
  for (const std::vector<size_t>& segments : packed) {
    int64_t at = 0;
    for (const size_t s : segments) {
      for (size_t t = 0; t < rows[s].size(); ++t, ++at) {
        const bool is_last = t + 1 == rows[s].size();
        lists.ids.push_back(rows[s][t]);
        lists.targets.push_back(is_last ? -1 : rows[s][t + 1]);
        lists.positions.push_back(static_cast<int32_t>(t));
        b.target_tokens += !is_last;
      }
    }
    lists.lengths.push_back(static_cast<int32_t>(at));
    for (; at < T; ++at) {
      lists.ids.push_back(0);
      lists.targets.push_back(-1);
      lists.positions.push_back(0);
    }
  }
  lists.put(T, &b);
  return b;
}

RunConfig config_of(const char* layout, const char* precision, int64_t rows, int64_t T) {
  RunConfig c;
  c.data.layout = layout;
  c.data.seq_length = T;
  c.data.eval_fraction = 0.5;  // an evaluation plan too
  c.train.global_batch = c.train.micro_batch = rows;
  c.train.precision = precision;
  return c;
}

double relative_distance(const Engine& a, const Engine& b, const Model& model) {
  double distance = 0, size = 0;
  for (const ParameterSpec& p : model.parameters()) {
    const float* x = a.executor().at<float>(p.name + "#grad");
    const float* y = b.executor().at<float>(p.name + "#grad");
    for (int64_t i = 0; i < num_elements(p.shape); ++i) {
      distance += (double{x[i]} - y[i]) * (double{x[i]} - y[i]);
      size += double{y[i]} * y[i];
    }
  }
  return std::sqrt(distance / size);
}

// Five rows in two packed ones, and the same five padded: every token's loss has the same bits, so
// their exact sum has; gradients are sums in another order.
TEST(Packed, LossAndGradientEqualThoseOfSeparateRows) {
  const auto model = small_qwen();
  const Rows rows = random_rows({7, 70, 2, 30, 90}, 3);
  const Batch packed = batch_of(rows, {{0, 1, 2}, {3, 4}}, 128);
  const Batch padded = batch_of(rows, {{0}, {1}, {2}, {3}, {4}}, 128);
  ASSERT_EQ(packed.target_tokens, padded.target_tokens);
  for (const char* precision : {"fp32", "bf16"}) {
    Engine a(config_of("pack", precision, 2, 128), *model, alone(), cpu_kernels(), 2);
    Engine b(config_of("pad", precision, 5, 128), *model, alone(), cpu_kernels(), 2);
    a.init_weights(1);
    b.init_weights(1);
    const double got = run_passes(a, packed).loss.value(),
                 wanted = run_passes(b, padded).loss.value();
    EXPECT_GT(wanted, 0);
    EXPECT_EQ(got, wanted) << precision;
    EXPECT_LT(relative_distance(a, b, *model), precision[0] == 'f' ? 1e-6 : 1e-2) << precision;
    EXPECT_EQ(a.eval_loss(packed).loss.value(), wanted) << precision;
  }
}

// A token of the first segment changes; only targets of the second count.
TEST(Packed, SegmentsDoNotLeak) {
  const auto model = small_qwen();
  Rows rows = random_rows({20, 30}, 4);
  const auto second_only = [&] {
    Batch b = batch_of(rows, {{0, 1}}, 64);
    std::fill_n(b.values("targets").begin(), 20, -1);
    b.target_tokens = 29;
    return b;
  };
  Batch before = second_only();
  rows[0][3] ^= 1;
  Batch after = second_only();
  Engine engine(config_of("pack", "fp32", 1, 64), *model, alone(), cpu_kernels(), 1);
  engine.init_weights(1);
  const double loss = engine.eval_loss(before).loss.value();
  EXPECT_EQ(engine.eval_loss(after).loss.value(), loss);
  // Negative controls: as one segment it is visible, and so is a token of the second.
  for (Batch* b : {&before, &after}) {
    for (int32_t t = 0; t < 50; ++t) b->values("positions")[static_cast<size_t>(t)] = t;
  }
  EXPECT_NE(engine.eval_loss(before).loss.value(), engine.eval_loss(after).loss.value());
  rows[0][3] ^= 1;
  rows[1][3] ^= 1;
  EXPECT_NE(engine.eval_loss(second_only()).loss.value(), loss);
}

// Batches of three lengths through one engine, against engines that are made for each length.
TEST(Dynamic, EveryLengthEqualsASeparatePlan) {
  const auto model = small_qwen();
  for (const char* precision : {"fp32", "bf16"}) {
    for (const int64_t micro : {4, 2}) {
      RunConfig c = config_of("dynamic", precision, 4, 96);
      c.train.micro_batch = micro;
      Engine engine(c, *model, alone(), cpu_kernels(), 1);
      engine.init_weights(1);
      const int64_t arena = engine.arena_bytes();
      int step = 0;
      for (const int64_t T : {32, 96, 48, 32}) {
        const Rows rows = random_rows({5, static_cast<int>(T), 2, 17}, static_cast<unsigned>(T));
        Batch batch = batch_of(rows, {{0}, {1}, {2}, {3}}, T);
        c.data.layout = "pad";
        c.data.seq_length = T;
        Engine own(c, *model, alone(), cpu_kernels(), 1);
        own.init_weights(1);
        const double loss = run_passes(engine, batch).loss.value();
        if (step == 0) {  // the weights are still those of the start
          EXPECT_EQ(loss, run_passes(own, batch).loss.value()) << T;
          EXPECT_EQ(run_update(engine, 1e-3, 1), run_update(own, 1e-3, 1)) << T;
        } else {
          EXPECT_GT(run_update(engine, 1e-3, step + 1), 0);
        }
        EXPECT_LE(own.arena_bytes(), arena);
        ++step;
      }
    }
  }
}

// Passes of their own lengths: every token's loss keeps its bits, gradients are sums that round
// elsewhere. A pass that is too short loses tokens, which is detected.
TEST(Dynamic, PassesOfTheirOwnLengths) {
  const auto model = small_qwen();
  RunConfig c = config_of("dynamic", "fp32", 6, 96);
  c.train.micro_batch = 2;
  const Batch alike =
      batch_of(random_rows({40, 90, 3, 12, 20, 33}, 9), {{0}, {1}, {2}, {3}, {4}, {5}}, 96);
  Batch by_pass = alike, too_short = alike;
  by_pass.pass_lengths = {{96, 0}, {16, 0}, {48, 0}};
  too_short.pass_lengths = {{96, 0}, {16, 0}, {16, 0}};
  Engine a(c, *model, alone(), cpu_kernels(), 1), b(c, *model, alone(), cpu_kernels(), 1);
  a.init_weights(1);
  b.init_weights(1);
  const double loss = run_passes(a, alike).loss.value();
  EXPECT_EQ(run_passes(b, by_pass).loss.value(), loss);
  EXPECT_LT(relative_distance(a, b, *model), 1e-6);
  EXPECT_EQ(b.eval_loss(by_pass).loss.value(), loss);
  EXPECT_NE(b.eval_loss(too_short).loss.value(), loss);
}

// The same steps with rows padded to the longest: only rounding of sums differs.
TEST(Dynamic, StepsEqualThoseOfPaddedRows) {
  const auto model = small_qwen();
  RunConfig c = config_of("dynamic", "fp32", 4, 64);
  Engine dynamic(c, *model, alone(), cpu_kernels(), 1);
  c.data.layout = "pad";
  Engine padded(c, *model, alone(), cpu_kernels(), 1);
  dynamic.init_weights(1);
  padded.init_weights(1);
  for (int step = 1; step <= 6; ++step) {
    const int64_t T = 16 * (1 + step % 4);
    const Rows rows = random_rows({9, static_cast<int>(T), 3, 12}, static_cast<unsigned>(step));
    const Batch shorter = batch_of(rows, {{0}, {1}, {2}, {3}}, T);
    const Batch longer = batch_of(rows, {{0}, {1}, {2}, {3}}, 64);
    const double a = run_passes(dynamic, shorter).mean(), b = run_passes(padded, longer).mean();
    EXPECT_NEAR(a / b, 1, 1e-6) << step;
    EXPECT_NEAR(run_update(dynamic, 1e-3, step) / run_update(padded, 1e-3, step), 1, 1e-5) << step;
  }
}

}  // namespace
}  // namespace weft
