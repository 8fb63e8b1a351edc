// tests/dist/exact_test.cpp: exact mode: the same bits in every layout.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "comm/gloo/gloo.h"
#include "graph/ops/attention.h"
#include "net/store.h"
#include "tests/dist/layouts.h"

namespace weft::testing {
namespace {

// Layouts that each exercise something else; compared with dp 1, tp 1. Eight ranks on request.
std::vector<Place> layouts(int most_tp, bool eight_ranks) {
  std::vector<Place> all = {
      {2, 2, "zero3"},    {1, 1, "none", 1}, {2, 1, "none"},     {4, 1, "none", 2}, {1, 2, "none"},
      {2, 1, "zero1"},    {4, 1, "zero1"},   {2, 1, "zero2", 2}, {4, 1, "zero2"},   {2, 1, "zero3"},
      {4, 1, "zero3", 1}, {2, 2, "none"},    {2, 2, "zero1"},    {2, 2, "zero2"}};
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
  for (int s = 0; s < steps; ++s)  // batches are repeated
    run.batches.push_back(
        random_batch(rows, 12, 1003, static_cast<uint64_t>(100 + s % (steps >= 30 ? 10 : 4))));
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

// The loss falls: from one use of a batch to a later one.
void expect_learns(const MeshResult& one, size_t repeat) {
  EXPECT_LT(one.losses.back(), one.losses[one.losses.size() - 1 - repeat]);
}

LayoutRun exact_layouts(const ExactCase& c, int steps) {
  const auto make = [=] {
    MeshRun run = exact_run(c.model(), c.precision, c.masters, steps);
    run.config.parallel.exact_tp = c.exact_tp;
    return run;
  };
  const size_t repeat = steps >= 30 ? 20 : 4;
  return {fmt::format("exact_{}_{}steps", c.name, steps), make, expect_same_bits,
          [=](const MeshResult& one) { expect_learns(one, repeat); }};
}

std::vector<LayoutCase> exact_cases() {
  std::vector<LayoutCase> cases;
  for (const ExactCase& c :
       {ExactCase{"qwen2_fp32", qwen2, 4, "fp32", true},
        ExactCase{"qwen2_bf16", qwen2, 4, "bf16", true},
        ExactCase{"llama_fp32", llama, 2, "fp32", true},
        ExactCase{"llama_bf16_pure", llama, 2, "bf16", false},
        ExactCase{"qwen2_copies_fp32", qwen2_two_kv_heads, 4, "fp32", true, 4},
        ExactCase{"qwen2_copies_bf16_pure", qwen2_two_kv_heads, 4, "bf16", false, 4},
        ExactCase{"llama_copies_fp32", llama_two_kv_heads, 4, "fp32", true, 4},
        ExactCase{"llama_one_kv_head_bf16", llama_one_kv_head, 4, "bf16", true, 8}}) {
    const auto more =
        layout_cases({exact_layouts(c, 8)}, layouts(c.most_tp, c.most_tp >= 4 && c.exact_tp == 0));
    cases.insert(cases.end(), more.begin(), more.end());
  }
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Exact, Layouts, ::testing::ValuesIn(exact_cases()), layout_name);

// Ten batches, three times.
INSTANTIATE_TEST_SUITE_P(
    ExactLong, Layouts,
    ::testing::ValuesIn(layout_cases({exact_layouts({"qwen2_bf16", qwen2, 4, "bf16", true}, 30)},
                                     {{2, 2, "zero3"}, {4, 1, "zero2", 2}, {1, 4, "none"}})),
    layout_name);

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
std::vector<LayoutRun> frozen_copies() {
  std::vector<LayoutRun> runs;
  for (const auto& [name, frozen] : {std::pair{"k_proj", "*k_proj*"},
                                     {"qv_weights", "*[qv]_proj.weight"},
                                     {"v_bias", "*v_proj.bias"},
                                     {"layer", "*layers.0.*"}}) {
    runs.push_back({fmt::format("exact_copies_without_{}", name), [frozen = frozen] {
                      MeshRun run = exact_run(qwen2_two_kv_heads(), "fp32", true, 4);
                      run.config.parallel.exact_tp = 4;
                      run.config.model.freeze = {frozen};
                      return run;
                    }});
  }
  return runs;
}
INSTANTIATE_TEST_SUITE_P(ExactFrozenCopies, Layouts,
                         ::testing::ValuesIn(layout_cases(
                             frozen_copies(), {{1, 4, "none"}, {2, 2, "zero1"}, {2, 2, "zero3"}})),
                         layout_name);

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
void expect_same(const MeshRun& run, const MeshResult& one, const std::vector<Place>& places) {
  for (const Place& place : places) {
    EXPECT_EQ(join(differences(one, train_at(run, place))), "")
        << run.config.train.global_batch << " rows, " << text_of(place);
  }
}

LayoutRun exact_rows(const ExactCase& c, int rows, int steps) {
  return {fmt::format("exact_{}_{}rows", c.name, rows), [=] {
            MeshRun run = exact_run(c.model(), c.precision, c.masters, steps, rows);
            run.config.parallel.exact_tp = c.exact_tp;
            return run;
          }};
}

constexpr ExactCase kDpCases[] = {
    {"qwen2_fp32", qwen2, 4, "fp32", true},
    {"llama_bf16", llama, 2, "bf16", true},
    {"qwen2_copies_bf16_pure", qwen2_two_kv_heads, 4, "bf16", false, 4}};

std::vector<LayoutRun> exact_rows_of_all(int rows, int steps) {
  std::vector<LayoutRun> runs;
  for (const ExactCase& c : kDpCases) runs.push_back(exact_rows(c, rows, steps));
  return runs;
}

INSTANTIATE_TEST_SUITE_P(ExactDpOfTwelveRows, Layouts,
                         ::testing::ValuesIn(layout_cases(exact_rows_of_all(12, 4),
                                                          {{3, 1, "zero3"},
                                                           {2, 1, "zero2"},
                                                           {3, 1, "none", 1},
                                                           {3, 1, "zero1"},
                                                           {3, 1, "zero2", 2},
                                                           {6, 1, "none"},
                                                           {6, 1, "zero1", 1},
                                                           {6, 1, "zero2"},
                                                           {6, 1, "zero3", 2},
                                                           {12, 1, "none"},
                                                           {12, 1, "zero1"},
                                                           {3, 2, "none"},
                                                           {3, 2, "zero1", 2},
                                                           {3, 2, "zero3"}})),
                         layout_name);
INSTANTIATE_TEST_SUITE_P(
    ExactDpOfThirtyRows, Layouts,
    ::testing::ValuesIn(layout_cases(
        exact_rows_of_all(30, 3),
        {{5, 1, "zero2"}, {2, 1, "none"}, {3, 1, "zero1"}, {5, 1, "none"}, {6, 1, "zero3"}})),
    layout_name);

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
std::vector<LayoutRun> frozen_rows() {
  std::vector<LayoutRun> runs;
  for (const auto& [name, frozen] :
       {std::pair{"embedding", "*embed*"}, {"layer", "*layers.0.*"}, {"v_bias", "*v_proj.bias"}}) {
    runs.push_back({fmt::format("exact_12rows_without_{}", name), [frozen = frozen] {
                      MeshRun run = exact_run(qwen2(), "fp32", true, 3, 12);
                      run.config.model.freeze = {frozen};
                      return run;
                    }});
  }
  return runs;
}
INSTANTIATE_TEST_SUITE_P(ExactDpFrozen, Layouts,
                         ::testing::ValuesIn(layout_cases(
                             frozen_rows(), {{3, 1, "zero3"}, {3, 1, "none"}, {3, 1, "zero1"}})),
                         layout_name);

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
