// tests/dist/exact_test.cpp: exact mode: the same bits in every layout.
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "comm/gloo/gloo.h"
#include "graph/ops/attention.h"
#include "net/store.h"
#include "tests/dist/mesh_run.h"

namespace weft::testing {
namespace {

// Layouts that each exercise something else; compared with dp 1, tp 1. Eight ranks on request.
std::vector<Place> layouts(int most_tp, bool eight_ranks) {
  std::vector<Place> all = {
      {1, 1, "none", 1}, {2, 1, "none"},     {4, 1, "none", 2}, {1, 2, "none"},  {2, 1, "zero1"},
      {4, 1, "zero1"},   {2, 1, "zero2", 2}, {4, 1, "zero2"},   {2, 1, "zero3"}, {4, 1, "zero3", 1},
      {2, 2, "none"},    {2, 2, "zero1"},    {2, 2, "zero2"},   {2, 2, "zero3"}};
  if (most_tp >= 4) all.push_back({1, 4, "none"});
  if (eight_ranks) all.push_back({2, 4, "zero3"});
  return all;
}

Json qwen2() {
  return parse_json(R"({"architectures": ["Qwen2ForCausalLM"], "hidden_size": 48,
      "intermediate_size": 88, "num_hidden_layers": 2, "num_attention_heads": 12,
      "num_key_value_heads": 4, "vocab_size": 1003, "tie_word_embeddings": true,
      "initializer_range": 0.1})",
                    "config");
}

Json llama() {
  return parse_json(R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 36,
      "intermediate_size": 50, "num_hidden_layers": 2, "num_attention_heads": 6,
      "num_key_value_heads": 2, "vocab_size": 1003, "tie_word_embeddings": false,
      "initializer_range": 0.1})",
                    "config");
}

// Fewer key/value heads than leaves: exact_tp 4 has copies on a rank or on two. Of one head, tp 2
// and 4 have both: two ranks or four hold it, and each reads it several times.
Json qwen2_two_kv_heads() {
  Json c = qwen2();
  c.set("num_key_value_heads", 2);
  return c;
}

Json llama_eight_heads(int kv_heads) {
  Json c = llama();
  c.set("hidden_size", 48);
  c.set("intermediate_size", 56);
  c.set("num_attention_heads", 8);
  c.set("num_key_value_heads", kv_heads);
  return c;
}
Json llama_two_kv_heads() { return llama_eight_heads(2); }
Json llama_one_kv_head() { return llama_eight_heads(1); }

MeshRun exact_run(const Json& model, const char* precision, bool masters, int steps, int rows = 8) {
  MeshRun run;
  run.model = model;
  run.config.train.global_batch = rows;
  run.config.train.precision = precision;
  run.config.train.master_weights = masters;
  run.config.train.clip_norm = 0.5;
  run.config.data.seq_length = 12;
  run.config.parallel.mode = "exact";
  for (int s = 0; s < steps; ++s)  // ten batches, repeated
    run.batches.push_back(random_batch(rows, 12, 1003, static_cast<uint64_t>(100 + s % 10)));
  run.eval = random_batch(7, 12, 1003, 99);
  return run;
}

struct ExactCase {
  const char* name;
  Json (*model)();
  int most_tp;
  const char* precision;
  bool masters;
  int exact_tp = 0;
};

class Exact : public ::testing::TestWithParam<ExactCase> {};

TEST_P(Exact, SameBitsInEveryLayout) {
  const ExactCase& c = GetParam();
  MeshRun run = exact_run(c.model(), c.precision, c.masters, 30);
  run.config.parallel.exact_tp = c.exact_tp;
  const MeshResult one = train_at(run, {1, 1, "none"});
  ASSERT_EQ(one.losses.size(), 30u);
  EXPECT_LT(one.losses[29], one.losses[9]);  // of one batch
  for (const Place& place : layouts(c.most_tp, c.most_tp >= 4 && c.exact_tp == 0)) {
    const MeshResult other = train_at(run, place);
    EXPECT_EQ(join(differences(one, other)), "") << "dp " << place.dp << " tp " << place.tp << " "
                                                 << place.shard << " micro " << place.micro;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, Exact,
    ::testing::Values(ExactCase{"qwen2_fp32", qwen2, 4, "fp32", true},
                      ExactCase{"qwen2_bf16", qwen2, 4, "bf16", true},
                      ExactCase{"llama_fp32", llama, 2, "fp32", true},
                      ExactCase{"llama_bf16_pure", llama, 2, "bf16", false},
                      ExactCase{"qwen2_copies_fp32", qwen2_two_kv_heads, 4, "fp32", true, 4},
                      ExactCase{"qwen2_copies_bf16_pure", qwen2_two_kv_heads, 4, "bf16", false, 4},
                      ExactCase{"llama_copies_fp32", llama_two_kv_heads, 4, "fp32", true, 4},
                      ExactCase{"llama_one_kv_head_bf16", llama_one_kv_head, 4, "bf16", true, 8}),
    [](const auto& c) { return std::string(c.param.name); });

// The copies' addends are the gradient: nothing is counted twice or omitted.
TEST(Exact, CopiesOnlyChangeRounding) {
  MeshRun run = exact_run(llama_one_kv_head(), "fp32", true, 10);
  const MeshResult none = train_at(run, {1, 1, "none"});
  for (const int exact_tp : {2, 4, 8}) {
    run.config.parallel.exact_tp = exact_tp;
    const MeshResult copied = train_at(run, {1, 2, "none"});
    for (size_t s = 0; s < none.losses.size(); ++s) {
      EXPECT_NEAR(copied.losses[s], none.losses[s], 1e-5) << exact_tp;
      EXPECT_NEAR(copied.norms[s], none.norms[s], 1e-4 * none.norms[s]) << exact_tp;
    }
  }
}

// Parts of q, k and v that need no gradient, biases that need one.
TEST(Exact, CopiesOfFrozenParts) {
  MeshRun run = exact_run(qwen2_two_kv_heads(), "fp32", true, 4);
  run.config.parallel.exact_tp = 4;
  for (const char* frozen : {"*k_proj*", "*[qv]_proj.weight", "*v_proj.bias", "*layers.0.*"}) {
    run.config.model.freeze = {frozen};
    const MeshResult one = train_at(run, {1, 1, "none"});
    for (const Place& place : {Place{1, 4, "none"}, {2, 2, "zero1"}, {2, 2, "zero3"}}) {
      EXPECT_EQ(join(differences(one, train_at(run, place))), "")
          << frozen << " dp " << place.dp << " tp " << place.tp << " " << place.shard;
    }
  }
}

// The promise would be empty if fast mode kept it too, or if nothing could break it.
TEST(ExactControl, FastModeDiffers) {
  MeshRun run = exact_run(qwen2(), "fp32", true, 5);
  run.config.parallel.mode = "fast";
  const MeshResult one = train_at(run, {1, 1, "none"});
  EXPECT_NE(join(differences(one, train_at(run, {1, 2, "none"}))), "");
  EXPECT_NE(join(differences(one, train_at(run, {2, 1, "none"}))), "");
}

TEST(ExactControl, OtherConstantsHaveOtherBits) {
  MeshRun run = exact_run(qwen2(), "fp32", true, 3);
  const MeshResult eight = train_at(run, {1, 1, "none"});
  run.config.parallel.exact_dp = 2;
  EXPECT_NE(join(differences(eight, train_at(run, {1, 1, "none"}))), "");
  run.config.parallel.exact_dp = 0;
  run.config.parallel.exact_tp = 2;
  EXPECT_NE(join(differences(eight, train_at(run, {1, 1, "none"}))), "");
  // Copies are leaves: they change the sums, also on one rank.
  run.model = qwen2_two_kv_heads();
  const MeshResult two = train_at(run, {1, 1, "none"});
  run.config.parallel.exact_tp = 4;
  EXPECT_NE(join(differences(two, train_at(run, {1, 1, "none"}))), "");
}

// The accumulators of groups with several leaves: exact_dp 2 of 8 leaves, and leaves of two rows.
TEST(Exact, GroupsOfSeveralLeaves) {
  MeshRun run = exact_run(llama(), "fp32", true, 4);
  run.config.parallel.exact_dp = 2;
  const MeshResult one = train_at(run, {1, 1, "none"});
  for (const char* shard : {"none", "zero1", "zero2", "zero3"}) {
    EXPECT_EQ(join(differences(one, train_at(run, {2, 1, shard}))), "") << shard;
  }
  run.config.parallel.exact_rows = 2;
  const MeshResult pairs = train_at(run, {1, 1, "none"});
  EXPECT_NE(join(differences(one, pairs)), "");
  EXPECT_EQ(join(differences(pairs, train_at(run, {2, 2, "zero3"}))), "");
}

// ------------------------------------------------------------------ every dp that divides the rows
// Twelve rows are four groups of three, thirty are two of fifteen: none of these dp but 2 owns
// whole groups, and leaves go to the owners of shards pass after pass.
class ExactDp : public ::testing::TestWithParam<ExactCase> {};

void expect_same(const MeshRun& run, const MeshResult& one, const std::vector<Place>& places) {
  for (const Place& place : places) {
    EXPECT_EQ(join(differences(one, train_at(run, place))), "")
        << run.config.train.global_batch << " rows, dp " << place.dp << " tp " << place.tp << " "
        << place.shard << " micro " << place.micro;
  }
}

TEST_P(ExactDp, SameBitsWhereItOwnsNoGroups) {
  const ExactCase& c = GetParam();
  MeshRun run = exact_run(c.model(), c.precision, c.masters, 6, 12);
  run.config.parallel.exact_tp = c.exact_tp;
  const MeshResult one = train_at(run, {1, 1, "none"});
  expect_same(run, one,
              {{2, 1, "zero2"},
               {3, 1, "none", 1},
               {3, 1, "zero1"},
               {3, 1, "zero2", 2},
               {3, 1, "zero3"},
               {6, 1, "none"},
               {6, 1, "zero1", 1},
               {6, 1, "zero2"},
               {6, 1, "zero3", 2},
               {12, 1, "none"},
               {12, 1, "zero1"},
               {3, 2, "none"},
               {3, 2, "zero1", 2},
               {3, 2, "zero3"}});
  MeshRun thirty = exact_run(c.model(), c.precision, c.masters, 3, 30);
  thirty.config.parallel.exact_tp = c.exact_tp;
  expect_same(thirty, train_at(thirty, {1, 1, "none"}),
              {{2, 1, "none"}, {3, 1, "zero1"}, {5, 1, "none"}, {5, 1, "zero2"}, {6, 1, "zero3"}});
}

INSTANTIATE_TEST_SUITE_P(Models, ExactDp,
                         ::testing::Values(ExactCase{"qwen2_fp32", qwen2, 4, "fp32", true},
                                           ExactCase{"llama_bf16", llama, 2, "bf16", true},
                                           ExactCase{"qwen2_copies_bf16_pure", qwen2_two_kv_heads,
                                                     4, "bf16", false, 4}),
                         [](const auto& c) { return std::string(c.param.name); });

// One group, a dp above the groups that is a power of two itself, leaves of two rows, one pass.
TEST(ExactDp, OtherConstants) {
  MeshRun run = exact_run(llama(), "fp32", true, 3, 12);
  run.config.parallel.exact_dp = 1;
  const MeshResult chain = train_at(run, {1, 1, "none"});
  expect_same(run, chain, {{2, 1, "none"}, {4, 1, "zero1"}, {3, 1, "zero2"}, {4, 2, "zero3"}});
  run.config.parallel.exact_dp = 0;
  run.config.parallel.exact_rows = 2;  // six leaves, two groups
  const MeshResult pairs = train_at(run, {1, 1, "none"});
  EXPECT_NE(join(differences(chain, pairs)), "");
  expect_same(run, pairs, {{3, 1, "none"}, {6, 1, "zero1"}, {3, 1, "zero3"}});
}

// A tied embedding, dropout off, parameters without a gradient.
TEST(ExactDp, FrozenParts) {
  MeshRun run = exact_run(qwen2(), "fp32", true, 3, 12);
  for (const char* frozen : {"*embed*", "*layers.0.*", "*v_proj.bias"}) {
    run.config.model.freeze = {frozen};
    expect_same(run, train_at(run, {1, 1, "none"}),
                {{3, 1, "none"}, {3, 1, "zero1"}, {3, 1, "zero3"}});
  }
}

// Leaves of a group in another order are other sums, on every dp the same ones.
TEST(ExactDpControl, TwoSwappedLeavesAreDetected) {
  const MeshRun run = exact_run(llama(), "fp32", true, 1, 12);
  MeshRun swapped = run;
  swap_rows(&swapped.batches[0], 1, 2);
  const MeshResult one = train_at(run, {1, 1, "none"});
  const MeshResult other = train_at(swapped, {1, 1, "none"});
  EXPECT_EQ(one.losses, other.losses);
  EXPECT_NE(join(differences(one, other)), "");
  for (const char* shard : {"none", "zero1", "zero2", "zero3"}) {
    const MeshResult three = train_at(swapped, {3, 1, shard});
    EXPECT_NE(join(differences(one, three)), "") << shard;
    EXPECT_EQ(join(differences(other, three)), "") << shard;
  }
}

TEST(ExactDp, ThatDoesNotDivideTheLeavesIsRefused) {
  MeshRun run = exact_run(llama(), "fp32", true, 1, 12);
  const auto refused = [&](int dp) {
    try {
      train_at(run, {dp, 1, "none"});
    } catch (const UserError& e) {
      return std::string(e.what()) + " " + e.hint();
    }
    return std::string("taken");
  };
  EXPECT_NE(refused(5).find("must divide global_batch / exact_rows = 12"), std::string::npos);
  EXPECT_NE(refused(5).find("parallel.dp: 1, 2, 3, 4, 6, 12"), std::string::npos) << refused(5);
  run.config.parallel.exact_rows = 4;
  EXPECT_NE(refused(6).find("parallel.dp: 1, 3"), std::string::npos) << refused(6);
}

// All sums are ours, so the transport does not matter.
TEST(Exact, OverTcpAsInSharedMemory) {
  if (!has_gloo()) {
    EXPECT_THROW(make_gloo_comm({}), UserError);
    return;
  }
  MeshRun run = exact_run(qwen2(), "bf16", true, 4, 12);
  for (const Place& place : {Place{2, 2, "none"}, {2, 2, "zero3"}, {3, 1, "none"}}) {
    const MeshResult shared = train_at(run, place);
    const StoreServer store;
    MeshRun over_tcp = run;
    over_tcp.make_comm = [&store](int rank, int num_ranks) {
      GlooOptions options;
      options.rank = rank;
      options.num_ranks = num_ranks;
      options.store = store.endpoint();
      return make_gloo_comm(options);
    };
    EXPECT_EQ(join(differences(shared, train_at(over_tcp, place))), "")
        << "dp " << place.dp << " " << place.shard;
  }
}

TEST(Exact, NoRankComputesWhatItDoesNotOwn) {
  MeshRun run = exact_run(qwen2_two_kv_heads(), "fp32", true, 1);
  run.config.parallel.exact_tp = 4;
  for (const char* model : {"two key/value heads", "four"}) {
    const MeshResult one = train_at(run, {1, 1, "none"}), four = train_at(run, {1, 4, "none"});
    for (const double flops : four.pass_flops) EXPECT_LT(flops, one.pass_flops[0] / 3.8) << model;
    run.model = qwen2();
  }
  const MeshResult one = train_at(run, {1, 1, "none"});
  const MeshResult data = train_at(run, {4, 1, "zero3"});
  for (size_t r = 0; r < 4; ++r) {
    // Passes, and so kernel calls of the forward pass, fall with dp.
    EXPECT_EQ(data.calls[r].at(&kAttentionOp) * 4, one.calls[0].at(&kAttentionOp));
    EXPECT_LT(data.arena_bytes[r], one.arena_bytes[0] * 7 / 10);
  }
}

}  // namespace
}  // namespace weft::testing
