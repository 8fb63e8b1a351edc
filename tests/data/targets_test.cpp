// tests/data/targets_test.cpp: rows without labels are counted, named, and rejected where there are
// no others.
#include <gtest/gtest.h>

#include "data/batches.h"
#include "tests/data/helpers.h"
#include "tests/text/tokenizer_fixture.h"

namespace weft {
namespace {

// An empty answer without a closing token has no tokens.
DataConfig pair_config(const std::string& layout = "pad") {
  DataConfig config;
  config.seq_length = 16;
  config.target_length = 8;
  config.source = "{q}";
  config.target = "{a}";
  config.append_eos = "false";
  config.drop_empty = false;
  config.layout = layout;
  config.shuffle = false;
  return config;
}

std::string pairs(int count, const std::string& answer) {
  std::string text;
  for (int i = 0; i < count; ++i) text += "{\"q\":\"ask me\",\"a\":\"" + answer + "\"}\n";
  return text;
}

std::unique_ptr<Tokenizer> chat_tokenizer() {
  Json json = test::small_tokenizer({});
  json.set("added_tokens", Json::Array{test::added_token("<|im_start|>", 256),
                                       test::added_token("<|im_end|>", 257)});
  return test::load(json, Json(Json::Object{{"eos_token", "<|im_end|>"}}));
}

struct Looked {
  bool has_targets = false;
  std::string error, hint;
  DataCounters counters;
};

// The first batch of a stream, and the search's error.
Looked look(const std::string& rows_text, const DataConfig& config, const Tokenizer& tokenizer,
            int64_t most = INT64_MAX, ModelKind kind = ModelKind::kCausal) {
  const auto rows = rows_in_memory(rows_text, RowFormat::kJsonLines, "t.jsonl");
  StreamOptions options;
  options.global_batch = 4;
  options.kind = kind;
  options.decoder_start_id = 0;
  BatchStream stream(config, *rows, tokenizer, options);
  Batch batch;
  EXPECT_TRUE(stream.next(batch));
  Looked looked{batch.has_targets, "", "", stream.counters()};
  try {
    stream.require_targets({}, most);
  } catch (const UserError& e) {
    looked.error = e.what();
    looked.hint = e.hint();
  }
  return looked;
}

TEST(Targets, RowsWithoutOneAreRefusedInEveryLayout) {
  const auto tokenizer = make_bytes_tokenizer();
  for (const char* layout : {"pad", "dynamic", "pack"}) {
    for (const ModelKind kind : {ModelKind::kCausal, ModelKind::kEncoderDecoder}) {
      const Looked none = look(pairs(30, ""), pair_config(layout), *tokenizer, INT64_MAX, kind);
      EXPECT_FALSE(none.has_targets) << layout;
      EXPECT_NE(none.error.find("none of the 30 rows of data.train has a target"),
                std::string::npos)
          << layout << none.error;
      EXPECT_NE(none.error.find("data.target: \"{a}\""), std::string::npos) << none.error;
      EXPECT_NE(none.hint.find("data.append_eos: true"), std::string::npos) << none.hint;
      const Looked good = look(pairs(30, "yes"), pair_config(layout), *tokenizer, INT64_MAX, kind);
      EXPECT_TRUE(good.has_targets) << layout;
      EXPECT_EQ(good.error, "") << layout;
      EXPECT_EQ(good.counters.untargeted, 0);
    }
  }
}

TEST(Targets, ALateOneIsEnough) {
  const auto tokenizer = make_bytes_tokenizer();
  const std::string rows = pairs(10'000, "") + pairs(1, "yes") + pairs(7, "");
  const Looked looked = look(rows, pair_config(), *tokenizer);
  EXPECT_FALSE(looked.has_targets);
  EXPECT_EQ(looked.error, "");
  // A run that ends before it would learn nothing.
  EXPECT_NE(look(rows, pair_config(), *tokenizer, 10'000)
                .error.find("none of the 10000 rows that the run uses"),
            std::string::npos);
  EXPECT_EQ(look(rows, pair_config(), *tokenizer, 10'001).error, "");
  // One that continues into the next epoch may use any row.
  EXPECT_EQ(look(rows, pair_config(), *tokenizer, 30'000).error, "");
}

TEST(Targets, ThoseWithoutAreCountedAndTheFirstIsNamed) {
  const auto tokenizer = make_bytes_tokenizer();
  for (const char* layout : {"pad", "dynamic", "pack"}) {
    const auto rows = rows_in_memory(pairs(2, "yes") + pairs(3, "") + pairs(3, "no"),
                                     RowFormat::kJsonLines, "t.jsonl");
    StreamOptions options;
    options.global_batch = 1;
    options.once = true;
    BatchStream stream(pair_config(layout), *rows, *tokenizer, options);
    Batch batch;
    while (stream.next(batch)) {
    }
    EXPECT_EQ(stream.counters().untargeted, 3) << layout;
    EXPECT_EQ(stream.counters().first_untargeted, "t.jsonl:3") << layout;
    EXPECT_NE(stream.counters().describe().find("3 rows without a target"), std::string::npos);
  }
}

TEST(Targets, ConversationsWithoutAnAssistantAreReported) {
  const auto tokenizer = chat_tokenizer();
  DataConfig config;
  config.messages = "messages";
  config.seq_length = 200;
  std::string rows, answered;
  for (int i = 0; i < 8; ++i) {
    rows += R"({"messages": [{"role": "user", "content": "a long question"}]})" + std::string("\n");
    answered += R"({"messages": [{"role": "user", "content": "a long question"},)"
                R"({"role": "assistant", "content": "Yes"}]})" +
                std::string("\n");
  }
  const Looked none = look(rows, config, *tokenizer);
  EXPECT_NE(none.error.find("none of the 8 rows of data.train has a target"), std::string::npos);
  EXPECT_NE(none.error.find("turns with the role assistant in column 'messages'"),
            std::string::npos);
  EXPECT_NE(none.hint.find("set data.messages"), std::string::npos) << none.hint;
  EXPECT_EQ(look(answered, config, *tokenizer).error, "");
  config.seq_length = 12;  // the answers are cut off
  const Looked cut = look(answered, config, *tokenizer);
  EXPECT_NE(cut.error.find("8 of the rows are cut to data.seq_length 12"), std::string::npos)
      << cut.error;
  EXPECT_NE(cut.hint.find("raise data.seq_length"), std::string::npos) << cut.hint;
}

// With a cache on disk, built by one stream and read by the next.
TEST(Targets, AreKnownFromTheCache) {
  const TempFolder folder;
  folder.write("t.jsonl", pairs(5, "yes") + pairs(600, ""));
  const auto tokenizer = make_bytes_tokenizer();
  for (int start = 0; start < 2; ++start) {
    const auto rows = open_rows({(folder.path() / "t.jsonl").string()}, "auto", "data.train");
    StreamOptions options;
    options.global_batch = 5;
    options.once = true;
    options.cache.folder = folder.path() / "cache";
    options.cache.small_bytes = 0;
    BatchStream stream(pair_config(), *rows, *tokenizer, options);
    Batch batch;
    ASSERT_TRUE(stream.next(batch));
    EXPECT_TRUE(batch.has_targets);
    ASSERT_TRUE(stream.next(batch));
    EXPECT_FALSE(batch.has_targets);
    while (stream.next(batch)) {
    }
    EXPECT_EQ(stream.counters().untargeted, 600);
  }
}

}  // namespace
}  // namespace weft
