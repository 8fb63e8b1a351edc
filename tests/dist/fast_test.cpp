// tests/dist/fast_test.cpp: fast mode: every layout within its documented tolerance of one rank.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/dist/mesh_run.h"

namespace weft::testing {
namespace {

// The documented tolerances: fp32 1e-5 per step; bf16 1e-3 in the mean, 5e-3 at most.
constexpr double kMostFp32 = 1e-5, kMeanBf16 = 1e-3, kMostBf16 = 5e-3;

MeshRun fast_run(const char* precision, int steps) {
  MeshRun run;
  run.model = parse_json(R"({"architectures": ["Qwen2ForCausalLM"], "hidden_size": 32,
      "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
      "num_key_value_heads": 2, "vocab_size": 101, "tie_word_embeddings": true,
      "initializer_range": 0.1})",
                         "config");
  run.lr = 1e-4;
  run.config.train.global_batch = 12;
  run.config.train.micro_batch = 2;
  run.config.train.precision = precision;
  run.config.train.master_weights = false;
  run.config.data.seq_length = 400;
  for (int s = 0; s < steps; ++s) {
    run.batches.push_back(random_batch(12, 400, 101, static_cast<uint64_t>(s)));
    // Lengths are uniform; a batch with too few labels is drawn again.
    for (uint64_t again = 1; run.batches.back().target_tokens < 2048; ++again) {
      run.batches.back() = random_batch(12, 400, 101, static_cast<uint64_t>(s) + 1000 * again);
    }
  }
  return run;
}

struct Distance {
  double mean = 0, most = 0;
};

Distance distance(const MeshResult& a, const MeshResult& b) {
  Distance d;
  for (size_t i = 0; i < a.losses.size(); ++i) {
    const double apart = std::abs(a.losses[i] - b.losses[i]);
    d.most = std::max(d.most, apart);
    d.mean += apart / static_cast<double>(a.losses.size());
  }
  return d;
}

TEST(Fast, Fp32StaysWithinTolerance) {
  const MeshRun run = fast_run("fp32", 40);
  const MeshResult one = train_at(run, {1, 1, "none", 2});
  for (const Place& place :
       {Place{2, 1, "none", 2}, Place{2, 1, "zero1", 2}, Place{2, 1, "zero2", 2},
        Place{3, 1, "zero3", 2}, Place{1, 2, "none", 2}, Place{1, 4, "none", 2},
        Place{2, 2, "zero3", 2}}) {
    const MeshResult other = train_at(run, place);
    EXPECT_LT(distance(one, other).most, kMostFp32)
        << "dp " << place.dp << " tp " << place.tp << " " << place.shard;
    for (size_t i = 0; i < one.norms.size(); ++i) {
      ASSERT_NEAR(other.norms[i], one.norms[i], 1e-4 * one.norms[i]) << i;
    }
  }
}

// 3 key/value heads on 2 and on 4 ranks: the heads between two ranks exist twice, and their
// gradients are sums of both. Checkpoints know three heads.
TEST(Fast, KeyValueHeadsThatTpDoesNotDivide) {
  MeshRun run = fast_run("fp32", 15);
  run.model.set("hidden_size", 48);
  run.model.set("num_attention_heads", 12);
  run.model.set("num_key_value_heads", 3);
  run.config.data.seq_length = 200;
  for (Batch& b : run.batches)
    b = random_batch(12, 200, 101, static_cast<uint64_t>(b.values("lengths")[0]));
  const MeshResult one = train_at(run, {1, 1, "none", 2});
  for (const Place& place :
       {Place{1, 2, "none", 2}, Place{1, 2, "none", 12}, Place{1, 4, "none", 2},
        Place{2, 2, "none", 2}, Place{2, 2, "zero1", 2}, Place{2, 2, "zero2", 2},
        Place{2, 2, "zero3", 2}, Place{2, 4, "zero3", 6}}) {
    const MeshResult other = train_at(run, place);
    const std::string what = fmt::format("dp {} tp {} {}", place.dp, place.tp, place.shard);
    EXPECT_LT(distance(one, other).most, kMostFp32) << what;
    for (size_t i = 0; i < one.norms.size(); ++i) {
      ASSERT_NEAR(other.norms[i], one.norms[i], 1e-4 * one.norms[i]) << what << " step " << i;
    }
    ASSERT_EQ(other.tensors.size(), one.tensors.size()) << what;
    for (const auto& [name, bytes] : one.tensors) {
      ASSERT_EQ(other.tensors.at(name).size(), bytes.size()) << what << " " << name;
    }
  }
}

TEST(Fast, Bf16StaysWithinTolerance) {
  const MeshRun run = fast_run("bf16", 40);
  const MeshResult one = train_at(run, {1, 1, "none", 2});
  for (const Place& place :
       {Place{2, 1, "none", 2}, Place{2, 2, "none", 2}, Place{3, 1, "zero3", 2}}) {
    const Distance d = distance(one, train_at(run, place));
    EXPECT_LT(d.mean, kMeanBf16) << "dp " << place.dp << " tp " << place.tp;
    EXPECT_LT(d.most, kMostBf16) << "dp " << place.dp << " tp " << place.tp;
  }
}

}  // namespace
}  // namespace weft::testing
