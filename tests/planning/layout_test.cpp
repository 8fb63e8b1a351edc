// tests/planning/layout_test.cpp: which exact_tp a model admits, and the errors of others.
#include "planning/layout.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/expect_part.h"
#include "tests/io/temporary_folder.h"

namespace weft {
namespace {

std::unique_ptr<Model> model(int heads, int kv_heads, int width) {
  Json c;
  c.set("architectures", Json(Json::Array{Json("LlamaForCausalLM")}));
  c.set("hidden_size", heads * 4);
  c.set("intermediate_size", width);
  c.set("num_hidden_layers", 1);
  c.set("num_attention_heads", heads);
  c.set("num_key_value_heads", kv_heads);
  c.set("vocab_size", 64);
  return make_model(c, {});
}

Layout layout(const Model& m, int64_t exact_tp, int64_t tp = 1) {
  RunConfig c;
  c.parallel.mode = "exact";
  c.parallel.exact_tp = exact_tp;
  c.parallel.tp = tp;
  return resolve_layout(c, m);
}

std::string refused(const Model& m, int64_t exact_tp, int64_t tp = 1) {
  return testing::error_of<UserError>([&] { layout(m, exact_tp, tp); });
}

// The default copies nothing.
TEST(ExactTp, IsByDefaultTheLargestThatDividesAll) {
  EXPECT_EQ(layout(*model(8, 2, 64), 0).exact_tp, 2);
  EXPECT_EQ(layout(*model(8, 8, 64), 0).exact_tp, 8);
  EXPECT_EQ(layout(*model(16, 16, 64), 0).exact_tp, 8);
  EXPECT_EQ(layout(*model(12, 6, 48), 0).exact_tp, 2);
  EXPECT_EQ(layout(*model(8, 1, 64), 0).exact_tp, 1);
}

TEST(ExactTp, MayBeAMultipleOfTheKeyValueHeads) {
  const auto m = model(8, 2, 64);
  for (const int64_t s : {1, 2, 4, 8}) EXPECT_EQ(layout(*m, s).exact_tp, s);
  EXPECT_EQ(layout(*model(8, 1, 64), 8).exact_tp, 8);
  // Ranks that hold the same heads.
  EXPECT_EQ(layout(*m, 8, 2).copies, 1);
  EXPECT_EQ(layout(*m, 8, 4).copies, 2);
  EXPECT_EQ(layout(*m, 8, 8).copies, 4);
}

TEST(ExactTp, OtherValuesAreRefusedWithTheAdmissibleOnes) {
  const auto expect = [](int heads, int kv_heads, int width, int64_t exact_tp, const char* good) {
    const std::string text = refused(*model(heads, kv_heads, width), exact_tp);
    testing::expect_part(text, "must be a power of two up to 8 that divides the model's heads");
    EXPECT_TRUE(text.ends_with(std::string("admissible: ") + good)) << text;
  };
  expect(8, 2, 64, 3, "1, 2, 4, 8");
  expect(8, 2, 64, 16, "1, 2, 4, 8");
  expect(12, 2, 64, 8, "1, 2, 4");  // the heads
  expect(8, 2, 60, 8, "1, 2, 4");   // the width
  expect(12, 3, 48, 4, "1");        // not a multiple of the key/value heads
  expect(12, 6, 48, 4, "1, 2");
}

// A tp beyond the default names the exact_tp that would do.
TEST(ExactTp, IsNamedWhereTpNeedsAnother) {
  const std::string text = refused(*model(8, 2, 64), 0, 4);
  testing::expect_part(text, "parallel.tp=4 must divide exact_tp=2");
  testing::expect_part(text, "admissible values of parallel.tp: 1, 2; or set parallel.exact_tp=4");
  testing::expect_part(refused(*model(8, 8, 64), 4, 8), "or set parallel.exact_tp=8");
  testing::expect_part(refused(*model(16, 16, 64), 0, 16), "exact mode has at most 8 leaves");
  EXPECT_EQ(refused(*model(6, 2, 48), 2, 6).find("or set"), std::string::npos);
}

Layout fast(const Model& m, int64_t tp) {
  RunConfig c;
  c.parallel.tp = tp;
  return resolve_layout(c, m);
}

// The heads of Qwen2-7B: only the actual cause is named.
TEST(Tp, IsRefusedWithItsCauseAndTheAdmissibleValues) {
  const auto refused_tp = [](const Model& m, int64_t tp) {
    return testing::error_of<UserError>([&] { fast(m, tp); });
  };
  const std::string heads = refused_tp(*model(28, 4, 18944), 8);
  testing::expect_part(heads, "parallel.tp=8 does not divide 28 attention heads\n");
  testing::expect_part(
      heads,
      "admissible values of parallel.tp: 1, 2, 4, since 28 attention heads allow 1, "
      "2, 4, 7, 14, 28; 18944 feed-forward channels allow 1, 2, 4, 8,");
  const std::string width = refused_tp(*model(12, 3, 50), 4);
  testing::expect_part(width, "parallel.tp=4 does not divide 50 feed-forward channels\n");
  // Too many copies for one product.
  testing::expect_part(
      refused_tp(*model(48, 16, 48), 3),
      "parallel.tp=3 would need 33 pieces in one product (of 16 key/value heads), at most "
      "24\n");
  testing::expect_part(
      refused_tp(*model(48, 16, 50), 3),
      "parallel.tp=3 does not divide 50 feed-forward channels, and would need 33 pieces");
  testing::expect_part(refused_tp(*model(12, 3, 50), 8),
                       "does not divide 12 attention heads, nor 50 feed-forward channels\n");
}

TEST(Tp, MayLeaveKeyValueHeadsBetweenRanks) {
  const auto m = model(12, 3, 48);
  for (const int64_t tp : {1, 2, 3, 4, 6, 12}) EXPECT_EQ(fast(*m, tp).tp, tp);
  EXPECT_EQ(fast(*m, 3).copies, 1);
  EXPECT_EQ(fast(*m, 6).copy_groups(), (std::vector<std::vector<int>>{{0, 0, 1, 1, 2, 2}}));
  EXPECT_EQ(fast(*m, 2).copy_groups(), (std::vector<std::vector<int>>{{0, 0}}));
  // Heads 0, 1 and 2 lie between ranks 0 and 1, 1 and 2, 2 and 3.
  EXPECT_EQ(fast(*m, 4).copy_groups(), (std::vector<std::vector<int>>{{0, 0, 2, 2}, {0, 1, 1, 3}}));
  // Exact mode has no such copies, and suggests fast mode.
  testing::expect_part(refused(*m, 0, 2), "parallel.mode=fast accepts parallel.tp=2");
}

Layout exact_dp(int64_t rows, int64_t exact_rows, int64_t dp) {
  RunConfig c;
  c.parallel.mode = "exact";
  c.parallel.exact_rows = exact_rows;
  c.parallel.dp = dp;
  c.train.global_batch = rows;
  return resolve_layout(c, *model(8, 2, 64));
}

// The groups depend only on the batch, not on dp.
TEST(ExactDp, EveryDivisorOfTheLeavesIsAccepted) {
  for (const int64_t dp : {1, 2, 3, 4, 6, 8, 12, 24}) {
    const Layout l = exact_dp(24, 1, dp);
    EXPECT_EQ(l.exact_dp, 8);
    EXPECT_EQ(l.data(0, 24 / dp).is_pass_major(), dp % 3 == 0) << dp;
  }
  for (const int64_t dp : {1, 2, 3, 5, 6, 10, 15, 30}) EXPECT_EQ(exact_dp(30, 1, dp).exact_dp, 2);
  EXPECT_EQ(exact_dp(24, 2, 6).exact_dp, 4);
  const std::string text = testing::error_of<UserError>([] { exact_dp(24, 2, 8); });
  testing::expect_part(text, "parallel.dp=8 must divide global_batch / exact_rows = 12");
  testing::expect_part(text, "admissible values of parallel.dp: 1, 2, 3, 4, 6, 12");
}

}  // namespace
}  // namespace weft
