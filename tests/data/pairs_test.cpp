// tests/data/pairs_test.cpp: batches of encoder-decoder models: source and target in every layout.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "base/json.h"
#include "data/batches.h"
#include "tests/batch_lists.h"
#include "tests/data/helpers.h"

namespace weft {
namespace {

constexpr int32_t kStart = 0;

StreamOptions pair_options(int64_t global_batch) {
  StreamOptions options;
  options.global_batch = global_batch;
  options.kind = ModelKind::kEncoderDecoder;
  options.decoder_start_id = kStart;
  return options;
}

DataConfig pair_config(const char* layout, int64_t seq_length, int64_t target_length) {
  DataConfig config;
  config.source = "{q}";
  config.target = "{a}";
  config.layout = layout;
  config.seq_length = seq_length;
  config.target_length = target_length;
  config.shuffle = false;
  return config;
}

std::unique_ptr<RowSource> json_rows(const std::string& text) {
  return rows_in_memory(text, RowFormat::kJsonLines, "t");
}

TEST(Pairs, SourceAndTargetApart) {
  const auto tokenizer = make_bytes_tokenizer();
  const auto rows = json_rows(
      "{\"q\":\"abcdef\",\"a\":\"xyz\"}\n{\"q\":\"g\",\"a\":\"uvwstr\"}\n"
      "{\"q\":\"h\",\"a\":\"\"}\n");
  DataConfig config = pair_config("pad", 4, 5);
  const StreamOptions options = pair_options(2);
  BatchStream stream(config, *rows, *tokenizer, options);
  Batch b;
  ASSERT_TRUE(stream.next(b));
  EXPECT_EQ(testing::list_of(b, "source_ids"),
            (std::vector<int32_t>{'a', 'b', 'c', 'd', 'g', kEos, kEos, kEos}));
  EXPECT_EQ(testing::list_of(b, "source_lengths"), (std::vector<int32_t>{4, 1}));
  EXPECT_EQ(testing::list_of(b, "targets"),
            (std::vector<int32_t>{'x', 'y', 'z', kEos, -1, 'u', 'v', 'w', 's', kEos}));
  EXPECT_EQ(testing::list_of(b, "ids"),
            (std::vector<int32_t>{0, 'x', 'y', 'z', kEos, 0, 'u', 'v', 'w', 's'}));
  EXPECT_EQ(testing::list_of(b, "lengths"), (std::vector<int32_t>{4, 5}));
  EXPECT_EQ(b.target_tokens, 9);
  EXPECT_EQ(b.tokens, 5 + 9);
  EXPECT_EQ(stream.counters().truncated, 2);
  EXPECT_EQ(stream.counters().dropped, 1);
  EXPECT_EQ(stream.counters().sources_cut, 1);
  EXPECT_EQ(stream.counters().targets_cut, 1);
  config.layout = "dynamic";
  config.seq_length = 100;
  config.target_length = 50;
  BatchStream dynamic(config, *rows, *tokenizer, options);
  ASSERT_TRUE(dynamic.next(b));
  EXPECT_EQ(b.padded.source, 16);
  EXPECT_EQ(b.padded.target, 16);
  config.target = config.source = "";
  expect_user_error([&] { BatchStream(config, *rows, *tokenizer, options); }, "data.target");
}

// A causal model keeps a row without an answer, an encoder-decoder drops it.
TEST(Pairs, RowsWithoutAnAnswerAreCounted) {
  const auto tokenizer = make_bytes_tokenizer();
  const auto rows = json_rows(
      "{\"q\":\"abcdef\",\"a\":\"\"}\n{\"q\":\"g\",\"a\":null}\n{\"q\":\"h\",\"a\":\"x\"}\n"
      "{\"q\":\"i\",\"a\":\"y\"}\n");
  const auto counted = [&](const char* append_eos, StreamOptions options) {
    DataConfig config = pair_config("pad", 4, 5);
    config.append_eos = append_eos;
    BatchStream stream(config, *rows, *tokenizer, options);
    Batch b;
    EXPECT_TRUE(stream.next(b));
    return stream.counters();
  };
  StreamOptions causal;
  causal.global_batch = 4;
  EXPECT_EQ(counted("auto", causal).unanswered, 2);
  EXPECT_NE(counted("auto", causal).describe().find("2 rows without an answer"), std::string::npos);
  const DataCounters pairs = counted("auto", pair_options(2));
  EXPECT_EQ(pairs.unanswered, 0);
  EXPECT_EQ(pairs.dropped, 2);
  // Without a closing token "g" alone is a row of one token.
  causal.global_batch = 3;
  EXPECT_EQ(counted("false", causal).unanswered, 1);
}

// Bytes, with a token before every text and one after it.
std::unique_ptr<Tokenizer> closing_tokenizer() {
  auto files = make_bytes_tokenizer()->files();
  Json json = parse_json(files["tokenizer.json"], "tokenizer.json");
  const Json end(Json::Object{{"SpecialToken", Json::Object{{"id", "e"}, {"type_id", 0}}}});
  const Json text(Json::Object{{"Sequence", Json::Object{{"id", "A"}, {"type_id", 0}}}});
  const Json token(
      Json::Object{{"id", "e"}, {"ids", Json::Array{kEos}}, {"tokens", Json::Array{"e"}}});
  json.set("post_processor", Json::Object{{"type", "TemplateProcessing"},
                                          {"single", Json::Array{end, text, end}},
                                          {"pair", Json::Array{}},
                                          {"special_tokens", Json::Object{{"e", token}}}});
  files["tokenizer.json"] = json.dump();
  return load_tokenizer_files(files, "test");
}

// An empty answer has the tokenizer's added tokens, and for a causal model only the eos.
TEST(Pairs, AnEmptyAnswerIsKnownByItsTokens) {
  const auto tokenizer = closing_tokenizer();
  const auto rows = json_rows("{\"q\":\"a\",\"a\":\"\"}\n{\"q\":\"b\",\"a\":\"x\"}\n");
  StreamOptions causal;
  causal.global_batch = 2;
  for (const StreamOptions& options : {causal, pair_options(2)}) {
    DataConfig config = pair_config("pad", 8, 8);
    config.drop_empty = false;
    BatchStream stream(config, *rows, *tokenizer, options);
    Batch b;
    ASSERT_TRUE(stream.next(b));
    EXPECT_EQ(stream.counters().unanswered, 1);
    EXPECT_EQ(stream.counters().dropped, 0);
  }
}

// A tokenizer's added tokens are never cut, so they must fit.
TEST(Pairs, LengthsMustFitTheTokenizersOwnTokens) {
  const auto tokenizer = closing_tokenizer();
  const auto rows = json_rows("{\"q\":\"ab\",\"a\":\"xy\"}\n");
  for (const char* layout : {"pad", "dynamic", "pack"}) {
    BatchStream stream(pair_config(layout, 3, 2), *rows, *tokenizer, pair_options(1));
    Batch b;
    ASSERT_TRUE(stream.next(b));
    EXPECT_EQ(testing::list_of(b, "source_ids"), (std::vector<int32_t>{kEos, 'a', kEos}));
    EXPECT_EQ(testing::list_of(b, "targets"), (std::vector<int32_t>{kEos, kEos}));
    expect_user_error(
        [&] { BatchStream(pair_config(layout, 3, 1), *rows, *tokenizer, pair_options(1)); },
        "data.target_length: 1 is too short for the tokenizer's own 2 tokens");
  }
}

// Each pass has the lengths of its own longest source and its own longest target.
TEST(Pairs, DynamicByThePassPadsBothSides) {
  const auto tokenizer = make_bytes_tokenizer();
  const auto line = [](size_t q, size_t a) {
    return fmt::format("{{\"q\":\"{}\",\"a\":\"{}\"}}\n", std::string(q, 'q'), std::string(a, 'a'));
  };
  const auto rows = json_rows(line(70, 3) + line(5, 20) + line(9, 40) + line(17, 1));
  StreamOptions options = pair_options(4);
  options.rows_per_pass = 2;
  BatchStream stream(pair_config("dynamic", 512, 64), *rows, *tokenizer, options);
  Batch b;
  ASSERT_TRUE(stream.next(b));
  EXPECT_EQ(b.padded.source, 80);
  EXPECT_EQ(b.padded.target, 48);
  EXPECT_EQ(b.pass_lengths, (std::vector<Lengths>{{32, 80}, {48, 32}}));
  EXPECT_EQ(b.positions, 2 * (80 + 32) + 2 * (32 + 48));
  EXPECT_EQ(b.tokens, 70 + 5 + 9 + 17 + 3 + 20 + 40 + 1 + 4);
  EXPECT_EQ(b.counted.padding, b.positions - b.tokens);
}

// Where padding is learned, all rows of a batch have the same amount of it, whatever a pass
// computes.
TEST(Pairs, LearnedPaddingDoesNotDependOnThePass) {
  const auto tokenizer = make_bytes_tokenizer();
  const auto rows = json_rows(
      "{\"q\":\"abc\",\"a\":\"xyz\"}\n{\"q\":\"d\",\"a\":\"aaaaabbbbbcccccdddddeeeee\"}\n");
  StreamOptions options = pair_options(2);
  options.rows_per_pass = 1;
  DataConfig config = pair_config("dynamic", 64, 64);
  config.mask_padding = false;
  for (const ModelKind kind : {ModelKind::kEncoderDecoder, ModelKind::kCausal}) {
    options.kind = kind;
    BatchStream stream(config, *rows, *tokenizer, options);
    Batch b;
    ASSERT_TRUE(stream.next(b));
    EXPECT_TRUE(b.pass_lengths.empty());
    EXPECT_EQ(b.padded.target, 32);
    // A causal row's first token and its prompt are not labels.
    EXPECT_EQ(b.target_tokens, kind == ModelKind::kCausal ? 31 - 2 + 31 : 64);
  }
  config.layout = "pack";
  expect_user_error([&] { BatchStream(config, *rows, *tokenizer, options); }, "mask_padding");
}

TEST(Pairs, PackedSideBySide) {
  const auto tokenizer = make_bytes_tokenizer();
  const auto rows = json_rows(
      "{\"q\":\"abcd\",\"a\":\"xyz\"}\n{\"q\":\"\",\"a\":\"u\"}\n{\"q\":\"gh\",\"a\":\"v\"}\n"
      "{\"q\":\"ijklmnop\",\"a\":\"stuvwxyz\"}\n");
  BatchStream stream(pair_config("pack", 7, 8), *rows, *tokenizer, pair_options(1));
  const PackSize size = stream.measure_pack();
  EXPECT_EQ(size.rows, 4);
  EXPECT_EQ(size.sequences, 3);  // the second pair has no source, so it is alone
  EXPECT_EQ(size.tokens, 4 + 4 + 2 + 2 + 2 + 7 + 8);
  EXPECT_EQ(size.positions, 3 * (7 + 8));
  Batch b;
  ASSERT_TRUE(stream.next(b));
  EXPECT_EQ(testing::list_of(b, "source_ids"),
            (std::vector<int32_t>{'a', 'b', 'c', 'd', 'g', 'h', kEos}));
  EXPECT_EQ(testing::list_of(b, "source_segments"), (std::vector<int32_t>{1, 1, 1, 1, 2, 2, 0}));
  EXPECT_EQ(testing::list_of(b, "source_positions"), (std::vector<int32_t>{0, 1, 2, 3, 0, 1, 0}));
  EXPECT_EQ(testing::list_of(b, "targets"),
            (std::vector<int32_t>{'x', 'y', 'z', kEos, 'v', kEos, -1, -1}));
  EXPECT_EQ(testing::list_of(b, "ids"),
            (std::vector<int32_t>{kStart, 'x', 'y', 'z', kStart, 'v', kEos, kEos}));
  EXPECT_EQ(testing::list_of(b, "segments"), (std::vector<int32_t>{1, 1, 1, 1, 2, 2, 0, 0}));
  EXPECT_EQ(testing::list_of(b, "positions"), (std::vector<int32_t>{0, 1, 2, 3, 0, 1, 0, 0}));
  EXPECT_EQ(testing::list_of(b, "source_lengths"), (std::vector<int32_t>{6}));
  EXPECT_EQ(testing::list_of(b, "lengths"), (std::vector<int32_t>{6}));
  EXPECT_EQ(b.target_tokens, 6);
  EXPECT_EQ(b.tokens, 12);
  EXPECT_EQ(b.positions, 15);
  EXPECT_EQ(b.counted.padding, 3);
  EXPECT_EQ(b.counted.rows, 2);
  EXPECT_EQ(stream.counters().truncated, 1);  // the fourth: cut, as pairs are never split
  EXPECT_EQ(stream.counters().split, 0);
  ASSERT_TRUE(stream.next(b));
  EXPECT_EQ(testing::list_of(b, "source_lengths"), (std::vector<int32_t>{0}));
  EXPECT_EQ(testing::list_of(b, "segments"), (std::vector<int32_t>{1, 1, 0, 0, 0, 0, 0, 0}));
}

// Taken apart again, the packed pairs of an epoch are the pairs of the file.
TEST(Pairs, PackedBatchesHoldEveryPairOnce) {
  const auto tokenizer = make_bytes_tokenizer();
  std::mt19937 random(12);
  std::string text;
  using Ids = std::vector<int32_t>;
  std::map<std::pair<Ids, Ids>, int> wanted;  // source and answer
  int64_t dropped = 0, truncated = 0, sources_cut = 0, targets_cut = 0, tokens = 0, kept = 0;
  for (int i = 0; i < 9000; ++i) {
    const std::string q(random() % 40, static_cast<char>('a' + random() % 26));
    const std::string a(random() % 18, static_cast<char>('a' + random() % 26));
    text += fmt::format("{{\"q\":\"{}\",\"a\":\"{}\"}}\n", q, a);
    if (a.empty()) {
      ++dropped;
      continue;
    }
    Ids source(q.begin(), q.begin() + static_cast<int64_t>(std::min<size_t>(q.size(), 32)));
    Ids answer(a.begin(), a.begin() + static_cast<int64_t>(std::min<size_t>(a.size(), 15)));
    truncated += q.size() > 32 || a.size() > 15;  // the last of 16 gives way to the end
    sources_cut += q.size() > 32;
    targets_cut += a.size() > 15;
    answer.push_back(kEos);
    ++kept;
    tokens += static_cast<int64_t>(source.size() + answer.size());
    ++wanted[{source, answer}];
  }
  const auto rows = json_rows(text);
  DataConfig config = pair_config("pack", 32, 16);
  config.shuffle = true;
  BatchStream stream(config, *rows, *tokenizer, pair_options(1));
  const PackSize size = stream.measure_pack();
  std::map<std::pair<Ids, Ids>, int> found;
  Batch b;
  int64_t targets = 0;
  for (int64_t step = 0; step < size.sequences; ++step) {
    ASSERT_TRUE(stream.next(b));
    ASSERT_EQ(b.epoch, 1);
    targets += b.target_tokens;
    std::map<int32_t, std::pair<Ids, Ids>> pairs;  // by segment
    for (size_t t = 0; t < 32; ++t) {
      const int32_t number = b.values("source_segments")[t];
      ASSERT_EQ(number > 0, t < static_cast<size_t>(b.values("source_lengths")[0]));
      if (number == 0) continue;
      Ids& source = pairs[number].first;
      ASSERT_EQ(b.values("source_positions")[t], static_cast<int32_t>(source.size()));
      source.push_back(b.values("source_ids")[t]);
    }
    for (size_t t = 0; t < 16; ++t) {
      const int32_t number = b.values("segments")[t];
      ASSERT_EQ(number > 0, t < static_cast<size_t>(b.values("lengths")[0]));
      ASSERT_EQ(b.values("targets")[t] >= 0, number > 0);
      if (number == 0) continue;
      Ids& answer = pairs[number].second;
      ASSERT_EQ(b.values("positions")[t], static_cast<int32_t>(answer.size()));
      ASSERT_EQ(b.values("ids")[t], answer.empty() ? kStart : answer.back());
      answer.push_back(b.values("targets")[t]);
    }
    for (const auto& [number, pair] : pairs) ++found[pair];
  }
  EXPECT_TRUE(b.is_epoch_end);
  EXPECT_EQ(found, wanted);
  const DataCounters& c = stream.counters();
  EXPECT_EQ(c.rows, kept);
  EXPECT_EQ(size.rows, kept);
  EXPECT_EQ(c.dropped, dropped);
  EXPECT_EQ(c.truncated, truncated);
  EXPECT_EQ(c.sources_cut, sources_cut);
  EXPECT_EQ(c.targets_cut, targets_cut);
  EXPECT_NE(c.describe().find(fmt::format(
                "{} rows cut to data.seq_length or data.target_length ({} in the source, {} in the "
                "target)",
                truncated, sources_cut, targets_cut)),
            std::string::npos)
      << c.describe();
  EXPECT_EQ(c.tokens, tokens);
  EXPECT_EQ(size.tokens, tokens);
  EXPECT_EQ(c.padding, size.sequences * 48 - tokens);
  EXPECT_EQ(size.positions, size.sequences * 48);
  EXPECT_EQ(c.efficiency(), size.efficiency());
  EXPECT_GT(c.efficiency(), 0.82);  // one pair in forty has no source, and so a row of its own
  EXPECT_LT(targets, tokens);
}

}  // namespace
}  // namespace weft
