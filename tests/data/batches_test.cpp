// tests/data/batches_test.cpp: examples, batches, counts, and exact resume.
#include "data/batches.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <set>

#include "data/eval_split.h"
#include "data/example.h"
#include "tests/batch_lists.h"
#include "tests/data/helpers.h"
#include "tests/text/tokenizer_fixture.h"

namespace weft {
namespace {

DataConfig text_config(int64_t seq_length) {
  DataConfig config;
  config.seq_length = seq_length;
  return config;
}

DataConfig pair_config(int64_t seq_length) {
  DataConfig config = text_config(seq_length);
  config.source = "{q}";
  config.target = "{a}";
  return config;
}

std::vector<int32_t> ids(std::string_view text, bool eos = false) {
  std::vector<int32_t> out;
  for (const char c : text) out.push_back(static_cast<unsigned char>(c));
  if (eos) out.push_back(kEos);
  return out;
}

Example make_one(const DataConfig& config, const std::string& json) {
  const auto tokenizer = make_bytes_tokenizer();
  const auto rows = rows_in_memory(json, RowFormat::kJsonLines, "t");
  const ExampleMaker maker(config, *tokenizer, 257);
  Row row;
  Example out;
  rows->read(0, row);
  maker.make(*rows, 0, row, out);
  return out;
}

// Where the labels begin; all that follow must be labels.
int64_t first_label(const Example& e) {
  const auto first = std::find(e.is_label.begin(), e.is_label.end(), 1);
  EXPECT_EQ(std::count(first, e.is_label.end(), 1), e.is_label.end() - first);
  EXPECT_EQ(e.is_label.size(), e.ids.size());
  return first - e.is_label.begin();
}

TEST(Example, TextIsCutOnTheRightAndHasNoEnd) {
  const Example e = make_one(text_config(4), R"({"text":"abcdef"})");
  EXPECT_EQ(e.ids, ids("abcd"));
  EXPECT_EQ(first_label(e), 1);
  EXPECT_TRUE(e.truncated);
  EXPECT_FALSE(e.source_cut || e.target_cut);  // it has no such parts
  EXPECT_EQ(make_one(text_config(9), R"({"text":"abc"})").ids, ids("abc"));
}

TEST(Example, TargetEndsOnceAndOnlyTargetIsLabel) {
  const Example e = make_one(pair_config(16), R"({"q":"ab","a":"xyz"})");
  EXPECT_EQ(e.ids, ids("abxyz", true));
  EXPECT_EQ(first_label(e), 2);
  const Example ended = make_one(pair_config(32), R"({"q":"ab","a":"x<|endoftext|>"})");
  EXPECT_EQ(ended.ids, ids("abx", true));
}

TEST(Example, SourceLosesItsBeginningThenTargetItsEnd) {
  const Example a = make_one(pair_config(6), R"({"q":"abcde","a":"xyz"})");
  EXPECT_EQ(a.ids, ids("dexyz", true));
  EXPECT_EQ(first_label(a), 2);
  EXPECT_TRUE(a.source_cut && !a.target_cut);
  const Example b = make_one(pair_config(3), R"({"q":"abcde","a":"wxyz"})");
  EXPECT_EQ(b.ids, ids("wxy"));
  EXPECT_EQ(first_label(b), 1);
  EXPECT_TRUE(b.source_cut && b.target_cut);
  const Example whole = make_one(pair_config(9), R"({"q":"ab","a":"xyz"})");
  EXPECT_FALSE(whole.source_cut || whole.target_cut);
}

// Token 256 begins a text and token 257 ends it; expected values as from transformers' truncation.
TEST(Example, CutsKeepTheTokenizersOwnTokens) {
  Json json = test::small_tokenizer({});
  json.set("added_tokens",
           Json::Array{test::added_token("<s>", 256), test::added_token("</s>", 257)});
  const auto tokenizer = test::load(json, Json(Json::Object{{"bos_token", "<s>"},
                                                            {"eos_token", "</s>"},
                                                            {"add_bos_token", true},
                                                            {"add_eos_token", true}}));
  const auto made = [&](const DataConfig& config, const std::string& line) {
    const auto rows = rows_in_memory(line, RowFormat::kJsonLines, "t");
    Row row;
    Example out;
    rows->read(0, row);
    ExampleMaker(config, *tokenizer, 300).make(*rows, 0, row, out);
    return out;
  };
  using Ids = std::vector<int32_t>;
  const Example text = made(text_config(4), R"({"text":"abcdef"})");
  EXPECT_EQ(text.ids, (Ids{256, 'a', 'b', 257}));
  EXPECT_EQ(first_label(text), 1);
  EXPECT_EQ(made(text_config(5), R"({"text":"abc"})").ids, (Ids{256, 'a', 'b', 'c', 257}));
  const Example pair = made(pair_config(7), R"({"q":"abcde","a":"xyz"})");
  EXPECT_EQ(pair.ids, (Ids{256, 'e', 257, 'x', 'y', 'z', 257}));
  EXPECT_EQ(pair.num_source, 3);
  EXPECT_TRUE(pair.source_cut && !pair.target_cut);
  EXPECT_EQ(made(pair_config(4), R"({"q":"abcde","a":"xyz"})").ids, (Ids{256, 257, 'x', 'y'}));
}

TEST(Example, AppendEosIsObeyed) {
  DataConfig config = text_config(8);
  config.append_eos = "true";
  EXPECT_EQ(make_one(config, R"({"text":"ab"})").ids, ids("ab", true));
  config = pair_config(8);
  config.append_eos = "false";
  EXPECT_EQ(make_one(config, R"({"q":"a","a":"b"})").ids, ids("ab"));
}

TEST(Example, BadRowsAndConfigurationsAreNamed) {
  expect_user_error([] { make_one(text_config(8), R"({"q":"a","a":"b"})"); },
                    "no column 'text'; there are: q, a");
  expect_user_error([] { make_one(pair_config(8), R"({"q":["a"],"a":"b"})"); }, "list");
  DataConfig config = pair_config(8);
  config.target = "";
  expect_user_error([&] { make_one(config, R"({"q":"a"})"); }, "go together");
  config = text_config(8);
  config.messages = "m";
  expect_user_error([&] { make_one(config, R"({"m":[]})"); }, "no token <|im_start|>");
  config.text = "{text}";
  expect_user_error([&] { make_one(config, R"({"m":[]})"); }, "exclude each other");
  const auto tokenizer = make_bytes_tokenizer();
  const auto rows = rows_in_memory("ok\n\xc3\xa9t\n", RowFormat::kText, "t.txt");
  DataConfig small = text_config(8);
  const ExampleMaker maker(small, *tokenizer, 257);
  EXPECT_EQ(maker.pad_id(), kEos);
  expect_user_error([&] { ExampleMaker(small, *tokenizer, 200); }, "200");
}

// A column of text where conversations are wanted, and the reverse.
TEST(Example, ConversationsAndTextAreToldApart) {
  Json json = test::small_tokenizer({});
  json.set("added_tokens", Json::Array{test::added_token("<|im_start|>", 256),
                                       test::added_token("<|im_end|>", 257)});
  const auto tokenizer = test::load(json, Json(Json::Object{{"eos_token", "<|im_end|>"}}));
  const auto rows = rows_in_memory("{\"m\":\"Hi\",\"l\":[{\"role\":\"user\"}],\"n\":[1]}\n",
                                   RowFormat::kJsonLines, "t");
  Row row;
  rows->read(0, row);
  Example out;
  DataConfig config = text_config(8);
  config.messages = "m";
  expect_user_error([&] { ExampleMaker(config, *tokenizer, 300).make(*rows, 0, row, out); },
                    "t:1: wanted a list of {role, content} in column 'm', got text");
  config.messages = "";
  const auto hint_of = [&](const char* text) {
    config.text = text;
    try {
      ExampleMaker(config, *tokenizer, 300).make(*rows, 0, row, out);
    } catch (const UserError& e) {
      return e.hint();
    }
    return std::string("none");
  };
  EXPECT_EQ(hint_of("{l}"), "chat rows: set data.messages: l");
  EXPECT_EQ(hint_of("{n}"), "");
}

TEST(Example, ToolsBesideAConversationAreRefused) {
  Json json = test::small_tokenizer({});
  json.set("added_tokens", Json::Array{test::added_token("<|im_start|>", 256),
                                       test::added_token("<|im_end|>", 257)});
  const auto tokenizer = test::load(json, Json(Json::Object{{"eos_token", "<|im_end|>"}}));
  DataConfig config = text_config(64);
  config.messages = "m";
  const auto make = [&](const std::string& tools) {
    const auto rows =
        rows_in_memory(R"({"m":[{"role":"assistant","content":"a"}],"tools":)" + tools + "}\n",
                       RowFormat::kJsonLines, "t");
    Row row;
    Example out;
    rows->read(0, row);
    return ExampleMaker(config, *tokenizer, 300).make(*rows, 0, row, out);
  };
  EXPECT_TRUE(make("null") && make("[]"));
  expect_user_error([&] { make(R"([{"name":"f"}])"); },
                    "t:1: the column 'tools' is not supported with data.messages");
}

// Fifty words whose ids are large: the vocabulary is checked row by row.
class LargeIds : public Tokenizer {
 public:
  void encode(std::string_view text, bool, std::vector<int32_t>& out) const override {
    for (const char c : text) out.push_back(c == '!' ? 9000 : 5);
  }
  std::string decode(std::span<const int32_t>, bool) const override { return ""; }
  std::string decode_next(Decoding&, int32_t) const override { return ""; }
  std::string decode_end(Decoding&) const override { return ""; }
  std::string token_bytes(int32_t) const override { return ""; }
  bool is_special(int32_t) const override { return false; }
  int32_t num_ids() const override { return 9001; }
  std::optional<int32_t> eos_id() const override { return std::nullopt; }
  std::optional<int32_t> bos_id() const override { return std::nullopt; }
  std::optional<int32_t> pad_id() const override { return std::nullopt; }
  uint64_t fingerprint() const override { return 0; }
  std::string describe() const override { return "test"; }
  std::map<std::string, std::string> files() const override { return {}; }
};

TEST(Batches, TokenBeyondTheVocabularyNamesRowAndId) {
  const LargeIds tokenizer;
  const auto rows = rows_in_memory("aa\nbb\ncc\nd!\n", RowFormat::kText, "t.txt");
  DataConfig config = text_config(8);
  config.shuffle = false;
  StreamOptions options;
  options.global_batch = 1;
  options.vocab_size = 100;
  BatchStream stream(config, *rows, tokenizer, options);
  Batch batch;
  expect_user_error(
      [&] {
        while (stream.next(batch)) {
        }
      },
      "t.txt:4: token id 9000");
}

TEST(Batches, PaddingTargetsAndCounts) {
  const auto tokenizer = make_bytes_tokenizer();
  const auto rows = rows_in_memory("{\"q\":\"ab\",\"a\":\"c\"}\n{\"q\":\"d\",\"a\":\"ef\"}\n",
                                   RowFormat::kJsonLines, "t");
  DataConfig config = pair_config(6);
  config.shuffle = false;
  StreamOptions options;
  options.global_batch = 2;
  for (const bool mask : {true, false}) {
    config.mask_padding = mask;
    BatchStream stream(config, *rows, *tokenizer, options);
    Batch batch;
    ASSERT_TRUE(stream.next(batch));
    EXPECT_EQ(testing::list_of(batch, "ids"),
              (std::vector<int32_t>{'a', 'b', 'c', kEos, kEos, kEos,  //
                                    'd', 'e', 'f', kEos, kEos, kEos}));
    const int32_t pad = mask ? -1 : kEos;
    EXPECT_EQ(testing::list_of(batch, "targets"),
              (std::vector<int32_t>{-1, 'c', kEos, pad, pad, -1,  //
                                    'e', 'f', kEos, pad, pad, -1}));
    EXPECT_EQ(testing::list_of(batch, "lengths"), (std::vector<int32_t>{4, 4}));
    EXPECT_EQ(batch.tokens, 8);
    EXPECT_EQ(batch.positions, 12);
    EXPECT_EQ(batch.target_tokens, mask ? 5 : 9);
    EXPECT_TRUE(batch.is_epoch_end);
    EXPECT_EQ(batch.after, (StreamState{2, 0}));
    EXPECT_EQ(batch.counted.padding, 4);
  }
}

// For models with learned positions; those of padding count on.
TEST(Batches, PositionsWhereTheModelNeedsThem) {
  const auto tokenizer = make_bytes_tokenizer();
  const auto rows = rows_in_memory("ab\ncdef\n", RowFormat::kText, "t");
  DataConfig config = text_config(5);
  config.shuffle = false;
  StreamOptions options;
  options.global_batch = 2;
  for (const bool needed : {true, false}) {
    options.needs_positions = needed;
    BatchStream stream(config, *rows, *tokenizer, options);
    Batch batch;
    ASSERT_TRUE(stream.next(batch));
    EXPECT_EQ(batch.find("segments"), nullptr);
    if (needed) {
      EXPECT_EQ(testing::list_of(batch, "positions"),
                (std::vector<int32_t>{0, 1, 2, 3, 4, 0, 1, 2, 3, 4}));
    } else {
      EXPECT_EQ(batch.find("positions"), nullptr);
    }
  }
}

std::string numbered_lines(int n) {
  std::string text;
  for (int i = 0; i < n; ++i) text += i % 5 == 3 ? "\n" : "row " + std::to_string(i) + "\n";
  return text;
}

TEST(Batches, DroppedTruncatedAndLeftOverRowsAreCounted) {
  const auto tokenizer = make_bytes_tokenizer();
  const auto rows = rows_in_memory(numbered_lines(100) + "bad \xff\n", RowFormat::kText, "t.txt");
  StreamOptions options;
  options.global_batch = 8;
  BatchStream stream(text_config(6), *rows, *tokenizer, options);
  EXPECT_EQ(stream.count_kept_rows(), 81);
  EXPECT_EQ(stream.count_steps_per_epoch(), 10);
  Batch batch;
  std::multiset<std::string> seen;
  for (int step = 0; step < 10; ++step) {
    ASSERT_TRUE(stream.next(batch));
    EXPECT_EQ(batch.epoch, 1);
    EXPECT_EQ(batch.is_epoch_end, step == 9);
    for (int64_t r = 0; r < batch.num_rows; ++r) {
      const auto begin = batch.values("ids").begin() + r * 6;
      seen.insert(tokenizer->decode(
          {begin, begin + batch.values("lengths")[static_cast<size_t>(r)]}, true));
    }
  }
  EXPECT_EQ(std::set(seen.begin(), seen.end()).size(), 80u);
  const DataCounters& c = stream.counters();
  EXPECT_EQ(c.rows, 80);
  EXPECT_EQ(c.dropped, 20);
  EXPECT_EQ(c.incomplete, 1);
  EXPECT_EQ(c.repaired, 1);
  ASSERT_EQ(c.first_repaired.size(), 1u);
  EXPECT_EQ(c.first_repaired[0], "t.txt:101");
  ASSERT_TRUE(stream.next(batch));
  EXPECT_EQ(batch.epoch, 2);
}

TEST(Batches, CutRowsAreCountedOnceInSeveralEpochs) {
  const auto tokenizer = make_bytes_tokenizer();
  std::string text;
  for (int i = 0; i < 16; ++i) text += "more than six letters\n";
  const auto rows = rows_in_memory(text, RowFormat::kText, "t.txt");
  StreamOptions options;
  options.global_batch = 8;
  for (const int64_t first : {1, 3}) {
    BatchStream stream(text_config(6), *rows, *tokenizer, options);
    stream.restore({first, 0});
    Batch batch;
    for (int step = 0; step < 6; ++step) ASSERT_TRUE(stream.next(batch));
    EXPECT_EQ(batch.epoch, first + 2);
    EXPECT_EQ(stream.counters().truncated, 16);
  }
}

TEST(Batches, FewerRowsThanABatchNamesBothNumbers) {
  const auto tokenizer = make_bytes_tokenizer();
  const auto rows = rows_in_memory(numbered_lines(10), RowFormat::kText, "t");
  StreamOptions options;
  options.global_batch = 11;
  expect_user_error([&] { BatchStream(text_config(8), *rows, *tokenizer, options); }, "10 usable");
  options.global_batch = 9;  // eight are not empty: only reading tells
  BatchStream stream(text_config(8), *rows, *tokenizer, options);
  Batch batch;
  expect_user_error([&] { stream.next(batch); }, "8 usable rows, fewer than one global batch of 9");
}

TEST(Batches, FractionLimitAndSplit) {
  DataConfig config = text_config(16);
  EXPECT_EQ(rows_taken(config, 1000), 1000);
  config.fraction = 0.5;
  EXPECT_EQ(rows_taken(config, 1000), 500);
  config.limit = 300;
  EXPECT_EQ(rows_taken(config, 1000), 300);
  for (const int64_t n : {25'000, 10'001, 7}) {
    const EvalSplit split(42, n, 0.1, false), other(43, n, 0.1, false), old(42, n, 0.1, true);
    int64_t num_eval = 0, num_both = 0, num_old = 0;
    for (int64_t i = 0; i < n; ++i) {
      num_eval += split.contains(i);
      num_both += split.contains(i) && other.contains(i);
      num_old += old.contains(i);
    }
    EXPECT_EQ(num_eval, std::llround(0.1 * static_cast<double>(n)));
    if (n < 100) continue;
    EXPECT_NEAR(static_cast<double>(num_both), 0.01 * static_cast<double>(n), 50);
    EXPECT_NEAR(static_cast<double>(num_old), 0.1 * static_cast<double>(n), 150);
    EXPECT_NE(num_old, num_eval);
  }

  const auto tokenizer = make_bytes_tokenizer();
  const auto rows = rows_in_memory(numbered_lines(1000), RowFormat::kText, "t");
  config = text_config(16);
  config.eval_fraction = 0.2;
  config.drop_empty = false;
  StreamOptions options;
  options.global_batch = 7;
  options.part = Part::kTrain;
  const int64_t num_train = BatchStream(config, *rows, *tokenizer, options).count_kept_rows();
  options.part = Part::kEval;
  options.once = true;
  BatchStream eval(config, *rows, *tokenizer, options);
  Batch batch;
  int64_t got = 0;
  while (eval.next(batch)) got += batch.num_rows;
  EXPECT_EQ(got, 200);
  EXPECT_EQ(num_train, 800);
  // A run that began with the old rule keeps that rule, also across epochs.
  options.part = Part::kTrain;
  options.once = false;
  BatchStream train(config, *rows, *tokenizer, options);
  StreamState old;
  old.splits_by_row = true;
  train.restore(old);
  const EvalSplit by_row(options.seed, 1000, 0.2, true);
  int64_t num_left = 0;
  for (int64_t i = 0; i < 1000; ++i) num_left += !by_row.contains(i);
  EXPECT_EQ(train.count_kept_rows(), num_left);
  EXPECT_NE(num_left, 800);
  while (train.state().epoch == 1) ASSERT_TRUE(train.next(batch));
  EXPECT_TRUE(train.state().splits_by_row);
  EXPECT_EQ(eval.counters().rows, got);
  EXPECT_NE(got % 7, 0);  // the last, short batch is there
}

bool same(const Batch& a, const Batch& b) {
  for (const char* name : {"ids", "targets", "lengths"}) {
    if (testing::list_of(a, name) != testing::list_of(b, name)) return false;
  }
  return testing::list_of<int64_t>(a, "rows") == testing::list_of<int64_t>(b, "rows") &&
         a.epoch == b.epoch && a.is_epoch_end == b.is_epoch_end && a.after == b.after &&
         a.tokens == b.tokens && a.target_tokens == b.target_tokens && a.num_rows == b.num_rows;
}

// Stop after any step and resume: the same batches as without stop.
TEST(Batches, ResumeGivesTheSameBatches) {
  const auto tokenizer = make_bytes_tokenizer();
  std::mt19937 random(7);
  auto draw = [&random](int low, int high) {
    return low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1));
  };
  for (int trial = 0; trial < 200; ++trial) {
    const int num_rows = draw(20, 300);
    const auto rows = rows_in_memory(numbered_lines(num_rows), RowFormat::kText, "t");
    DataConfig config = text_config(draw(2, 12));
    config.shuffle = draw(0, 3) > 0;
    config.drop_empty = draw(0, 1);
    config.eval_fraction = draw(0, 1) * 0.2;
    StreamOptions options;
    options.seed = random();
    options.global_batch = draw(1, 8);
    options.part = Part::kTrain;
    options.prefetch = draw(1, 5);
    BatchStream whole(config, *rows, *tokenizer, options);
    const int stop = draw(0, 80), more = draw(1, 60);
    Batch batch, resumed;
    for (int i = 0; i < stop; ++i) whole.next(batch);
    BatchStream again(config, *rows, *tokenizer, options);
    again.restore(whole.state());
    for (int i = 0; i < more; ++i) {
      ASSERT_TRUE(whole.next(batch));
      ASSERT_TRUE(again.next(resumed));
      ASSERT_TRUE(same(batch, resumed)) << trial << " step " << stop + i;
      ASSERT_EQ(whole.state(), again.state());
    }
    // The control: one row further on, other batches.
    const bool has_control = !config.drop_empty && config.eval_fraction == 0 &&
                             config.seq_length >= 8 &&
                             whole.state().position + 1 < whole.num_raw_rows();
    if (has_control) {
      again.restore({whole.state().epoch, whole.state().position + 1});
      whole.next(batch);
      again.next(resumed);
      EXPECT_FALSE(same(batch, resumed));
    }
  }
}

TEST(Batches, RestoreBeyondTheDataIsRefused) {
  const auto tokenizer = make_bytes_tokenizer();
  const auto rows = rows_in_memory(numbered_lines(50), RowFormat::kText, "t");
  BatchStream stream(text_config(8), *rows, *tokenizer, StreamOptions());
  expect_user_error([&] { stream.restore({1, 51}); }, "50 rows");
  expect_user_error([&] { stream.restore({1, -1}); }, "at row -1 of epoch 1");
  expect_user_error([&] { stream.restore({0, 0}); }, "of epoch 0");
  EXPECT_NO_THROW(stream.restore({1, 50}));
}

}  // namespace
}  // namespace weft
