// tests/train/layout_test.cpp: which exact_tp a model takes, and what is told of others.
#include "train/layout.h"

#include <gtest/gtest.h>

#include "base/error.h"
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

void expect_part(const std::string& text, const char* part) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

// The default copies nothing.
TEST(ExactTp, IsByDefaultTheMostThatDividesAll) {
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
    expect_part(text, "must be a power of two up to 8 that divides the model's heads");
    EXPECT_TRUE(text.ends_with(std::string("admissible: ") + good)) << text;
  };
  expect(8, 2, 64, 3, "1, 2, 4, 8");
  expect(8, 2, 64, 16, "1, 2, 4, 8");
  expect(12, 2, 64, 8, "1, 2, 4");  // the heads
  expect(8, 2, 60, 8, "1, 2, 4");   // the width
  expect(12, 3, 48, 4, "1");        // key/value heads of which it is no multiple
  expect(12, 6, 48, 4, "1, 2");
}

// tp beyond the default says which exact_tp would do.
TEST(ExactTp, IsNamedWhereTpNeedsAnother) {
  const std::string text = refused(*model(8, 2, 64), 0, 4);
  expect_part(text, "parallel.tp=4 must divide exact_tp=2");
  expect_part(text, "admissible values of parallel.tp: 1, 2; or set parallel.exact_tp=4");
  expect_part(refused(*model(8, 8, 64), 4, 8), "or set parallel.exact_tp=8");
  expect_part(refused(*model(16, 16, 64), 0, 16), "exact mode cuts into at most 8 leaves");
  EXPECT_EQ(refused(*model(6, 2, 48), 2, 6).find("or set"), std::string::npos);
}

}  // namespace
}  // namespace weft
