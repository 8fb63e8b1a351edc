// tests/text/tokenizer_json_test.cpp: what tokenizer.json and its companions may contain.
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/stop.h"
#include "tests/text/tokenizer_fixture.h"
#include "text/stream_decoder.h"

namespace weft {
namespace {

using test::added_token;
using test::entry;
using test::Ids;
using test::ids_of;

Json small() { return test::small_tokenizer({{"b", "c"}, {"a", "bc"}}); }

std::string refusal(const Json& json, const Json& config = {}) {
  try {
    test::load(json, config);
  } catch (const UserError& e) {
    return e.what();
  }
  return "";
}

TEST(TokenizerJson, AddedTokensAreMatchedFirst) {
  Json json = small();
  json.set("added_tokens", Json::Array{added_token("<x>", 258), added_token("<xy>", 259, false)});
  const auto t = test::load(json);
  EXPECT_EQ(ids_of(*t, "a<x><xy>abc<x"), (Ids{'a', 258, 259, 257, '<', 'x'}));
  EXPECT_EQ(t->num_ids(), 260);
  EXPECT_EQ(t->decode(Ids{'a', 258, 259}, true), "a<xy>");
  EXPECT_EQ(t->decode(Ids{'a', 258, 259}, false), "a<x><xy>");
  EXPECT_TRUE(t->is_special(258));
  EXPECT_FALSE(t->is_special(259));
  EXPECT_FALSE(t->is_special(-1));
  EXPECT_THROW(t->decode(Ids{260}, false), UserError);
  EXPECT_THROW(t->decode(Ids{-1}, true), UserError);
}

TEST(TokenizerJson, FlagsOfAddedTokens) {
  Json json = small();
  Json strip = added_token("<x>", 258), word = added_token("wd", 259);
  strip.set("lstrip", true), strip.set("rstrip", true), word.set("single_word", true);
  json.set("added_tokens", Json::Array{strip, word});
  const auto t = test::load(json);
  EXPECT_EQ(ids_of(*t, "a \t<x>\n b"), (Ids{'a', 258, 'b'}));
  EXPECT_EQ(ids_of(*t, "wd.wd"), (Ids{259, '.', 259}));
  EXPECT_EQ(ids_of(*t, "wda"), (Ids{'w', 'd', 'a'}));
  EXPECT_EQ(ids_of(*t, "_wd"), (Ids{'_', 'w', 'd'}));
}

TEST(TokenizerJson, NormalizedTokensAreFoundAfterNormalization) {
  Json json = small();
  json.set("normalizer", Json::Object{{"type", "NFC"}});
  Json token = added_token("e\xCC\x81", 258);
  token.set("normalized", true);
  json.set("added_tokens", Json::Array{token});
  const auto t = test::load(json);
  EXPECT_EQ(ids_of(*t, "xe\xCC\x81"), (Ids{'x', 258}));
  EXPECT_EQ(ids_of(*t, "x\xC3\xA9"), (Ids{'x', 258}));
}

TEST(TokenizerJson, TemplateAddsTokens) {
  Json json = small();
  json.set("added_tokens", Json::Array{added_token("<s>", 258)});
  const Json special = Json::Object{{"SpecialToken", Json::Object{{"id", "<s>"}, {"type_id", 0}}}};
  const Json text = Json::Object{{"Sequence", Json::Object{{"id", "A"}, {"type_id", 0}}}};
  const Json tokens = Json::Object{{"<s>", Json::Object{{"id", "<s>"}, {"ids", Json::Array{258}}}}};
  json.set("post_processor", Json::Object{{"type", "TemplateProcessing"},
                                          {"single", Json::Array{special, text}},
                                          {"special_tokens", tokens}});
  EXPECT_EQ(ids_of(*test::load(json), "abc"), (Ids{258, 257}));
  EXPECT_EQ(ids_of(*test::load(json), "abc", false), (Ids{257}));
  EXPECT_EQ(ids_of(*test::load(json), ""), (Ids{258}));
  Json undefined = json;
  test::entry(undefined, "post_processor").set("special_tokens", Json::Object{});
  EXPECT_EQ(refusal(undefined),
            "folder/tokenizer.json: the template names <s>, which special_tokens does not define");
  // What the configuration says about bos and eos replaces the template, as in transformers.
  const Json off = Json::Object{{"add_bos_token", false}};
  EXPECT_EQ(ids_of(*test::load(json, off), "abc"), (Ids{257}));
  const Json on = Json::Object{{"add_eos_token", true}, {"eos_token", "<s>"}};
  EXPECT_EQ(ids_of(*test::load(json, on), "abc"), (Ids{257, 258}));
}

TEST(TokenizerJson, PrefixSpace) {
  Json json = small();
  entry(json, "pre_tokenizer").set("add_prefix_space", true);
  EXPECT_EQ(ids_of(*test::load(json), "abc"), (Ids{' ', 257}));
  EXPECT_EQ(ids_of(*test::load(json), " abc"), (Ids{' ', 257}));
  EXPECT_EQ(ids_of(*test::load(json), ""), Ids{});
}

TEST(TokenizerJson, ConfigurationNamesSpecialTokens) {
  const Json config =
      Json::Object{{"eos_token", Json::Object{{"content", "<e>"}}},
                   {"pad_token", "abc"},
                   {"bos_token", nullptr},
                   {"added_tokens_decoder",
                    Json::Object{{"258", Json::Object{{"content", "<e>"}, {"special", true}}}}}};
  const auto t = test::load(small(), config);
  EXPECT_EQ(t->eos_id(), 258);
  EXPECT_EQ(t->pad_id(), 257);
  EXPECT_EQ(t->bos_id(), std::nullopt);
  EXPECT_EQ(ids_of(*t, "bc<e>"), (Ids{256, 258}));
  EXPECT_EQ(ids_of(*t, "xabcx"), (Ids{'x', 257, 'x'}));  // pad is cut out of the middle of a word
}

// Only the named token becomes special, no other added token.
TEST(TokenizerJson, ANameMakesOnlyItsTokenSpecial) {
  Json json = small();
  json.set("added_tokens",
           Json::Array{added_token("<a>", 258, false), added_token("<e>", 259, false)});
  const auto t = test::load(json, Json::Object{{"eos_token", "<e>"}});
  EXPECT_EQ(t->eos_id(), 259);
  EXPECT_FALSE(t->is_special(258));
  EXPECT_TRUE(t->is_special(259));
}

TEST(TokenizerJson, FingerprintFollowsWhatChangesIds) {
  const uint64_t base = test::load(small())->fingerprint();
  EXPECT_EQ(test::load(small())->fingerprint(), base);
  EXPECT_NE(test::load(test::small_tokenizer({{"b", "c"}}))->fingerprint(), base);
  EXPECT_NE(test::load(small(), Json::Object{{"eos_token", "<e>"}})->fingerprint(), base);
  EXPECT_EQ(test::load(small(), Json::Object{{"model_max_length", 5}})->fingerprint(), base);
}

TEST(TokenizerJson, RejectsUnsupportedFeaturesByName) {
  const auto with = [](std::string_view key, Json value) {
    Json json = small();
    json.set(std::string(key), std::move(value));
    return refusal(json);
  };
  const auto typed = [](const char* type) { return Json(Json::Object{{"type", type}}); };
  EXPECT_NE(with("normalizer", typed("BertNormalizer")).find("BertNormalizer"), std::string::npos);
  EXPECT_NE(with("pre_tokenizer", typed("Whitespace")).find("Whitespace"), std::string::npos);
  EXPECT_NE(with("pre_tokenizer", nullptr).find("ByteLevel"), std::string::npos);
  EXPECT_NE(with("post_processor", typed("BertProcessing")).find("BertProcessing"),
            std::string::npos);
  EXPECT_NE(with("decoder", typed("WordPiece")).find("WordPiece"), std::string::npos);
  EXPECT_NE(with("model", typed("WordPiece")).find("WordPiece"), std::string::npos);
  EXPECT_NE(with("model", typed("Unigram")).find("model.vocab"), std::string::npos);
  EXPECT_NE(with("surprise", 1).find("surprise"), std::string::npos);
  Json dropout = small();
  entry(dropout, "model").set("dropout", 0.1);
  EXPECT_NE(refusal(dropout).find("dropout"), std::string::npos);
  Json split = small();
  split.set("pre_tokenizer",
            Json::Object{{"type", "Split"}, {"pattern", Json::Object{{"Regex", "x+"}}}});
  EXPECT_NE(refusal(split).find("x+"), std::string::npos);
  EXPECT_NE(refusal(small(), Json::Object{{"split_special_tokens", true}}).find("split_special"),
            std::string::npos);
}

// Each Replace turns one letter into a thousand.
TEST(TokenizerJson, ANormalizerThatMultipliesTextIsBounded) {
  Json json = small();
  const Json replace = Json::Object{{"type", "Replace"},
                                    {"pattern", Json::Object{{"String", "e"}}},
                                    {"content", std::string(1000, 'e')}};
  json.set("normalizer",
           Json::Object{{"type", "Sequence"}, {"normalizers", Json::Array{replace, replace}}});
  const auto t = test::load(json);
  EXPECT_EQ(ids_of(*t, "e").size(), 1000000u);
  for (const std::string& text : {std::string(2, 'e'), std::string(1000000, 'e')}) {
    try {
      ids_of(*t, text);
      ADD_FAILURE() << text.size();
    } catch (const UserError& e) {
      EXPECT_NE(std::string(e.what()).find("normalizer \"Replace {\"String\": \"e\"} eee"),
                std::string::npos)
          << e.what();
    }
  }
}

// A stopping run does not wait for a row of 16 MB.
TEST(TokenizerJson, ALongRowCanBeAbandoned) {
  const auto t = test::load(small());
  std::string text;
  while (text.size() < 20000) text += "abc d ";
  std::atomic<bool> flag{false};
  const ScopedAbandon abandon(flag);
  EXPECT_GT(ids_of(*t, text).size(), 5000u);
  flag = true;
  EXPECT_THROW(ids_of(*t, text), StopError);
}

TEST(TokenizerJson, RejectsMalformedFiles) {
  const std::string good = small().dump();
  EXPECT_NO_THROW(load_tokenizer_files({{"tokenizer.json", good}}, "f"));
  for (size_t cut = 0; cut < good.size(); cut += 7)
    EXPECT_THROW(load_tokenizer_files({{"tokenizer.json", good.substr(0, cut)}}, "f"), UserError);
  EXPECT_THROW(load_tokenizer_files({{"tokenizer.json", good + "x"}}, "f"), UserError);
  EXPECT_THROW(load_tokenizer_files({}, "f"), UserError);
  EXPECT_THROW(load_tokenizer_files({{"vocab.json", "{}"}}, "f"), UserError);
  EXPECT_THROW(load_tokenizer("no/such/folder"), UserError);
  const auto two = [](std::string vocab, std::string merges) {
    return load_tokenizer_files(
        {{"vocab.json", std::move(vocab)}, {"merges.txt", std::move(merges)}}, "f");
  };
  EXPECT_NO_THROW(two(R"({"a":0,"b":1,"ab":2})", "#version: 0.2\na b\n"));
  EXPECT_THROW(two(R"({"a":0,"b":1})", "a b\n"), UserError);
  EXPECT_THROW(two(R"({"a":0,"b":1,"ab":2})", "a  b\n"), UserError);
  EXPECT_THROW(two(R"({"a":0,"b":1,"ab":2})", "ab\n"), UserError);
  EXPECT_THROW(two(R"({"a":0,"b":0})", ""), UserError);
  EXPECT_THROW(two(R"({"a":0,"a":1})", ""), UserError);
  EXPECT_THROW(two(R"({"a":-1})", ""), UserError);
  EXPECT_THROW(two(R"({"a":1e3})", ""), UserError);
  EXPECT_THROW(two(R"({"a":99999999999})", ""), UserError);
  EXPECT_THROW(two(R"({"a\ud800":1})", ""), UserError);
  Json moved = small();
  moved.set("added_tokens", Json::Array{added_token("<x>", 300)});
  EXPECT_NE(refusal(moved).find("300"), std::string::npos);
  moved.set("added_tokens", Json::Array{added_token("<x>", 0)});
  EXPECT_NE(refusal(moved).find("has the id 0, but its position makes it"), std::string::npos);
}

// -1 once meant "any": the token was given the next free id.
TEST(TokenizerJson, AddedTokensWithoutAnIdAreRefused) {
  Json json = small();
  json.set("added_tokens", Json::Array{added_token("<x>", -1)});
  EXPECT_EQ(refusal(json),
            "folder/tokenizer.json: the added token '<x>' has the id -1; ids start at 0");
  const Json decoder = Json::Object{{"-1", added_token("<x>", 258)}};
  const std::string e = refusal(small(), Json::Object{{"added_tokens_decoder", decoder}});
  EXPECT_NE(e.find("tokenizer_config.json: added_tokens_decoder: '-1'"), std::string::npos) << e;
  std::map<std::string, std::string> files{{"tokenizer.json", small().dump()},
                                           {"added_tokens.json", R"({"<x>": -1})"}};
  try {
    load_tokenizer_files(files, "folder");
    FAIL() << "taken";
  } catch (const UserError& refused) {
    EXPECT_EQ(std::string(refused.what()),
              "folder/added_tokens.json: the added token '<x>' has the id -1; ids start at 0");
  }
}

TEST(TokenizerJson, VocabAndMergesFollowTheClass) {
  std::map<std::string, std::string> files;
  const Json json = small();
  files["vocab.json"] = json.at("model").at("vocab").dump();
  files["merges.txt"] = "#version: 0.2\nb c\na bc\n";
  EXPECT_EQ(ids_of(*load_tokenizer_files(files, "f"), "'S"), (Ids{'\'', 'S'}));
  EXPECT_EQ(load_tokenizer_files(files, "f")->eos_id(), 258);  // <|endoftext|>, GPT-2's default
  files["tokenizer_config.json"] = R"({"tokenizer_class": "Qwen2Tokenizer"})";
  const auto qwen2 = load_tokenizer_files(files, "f");
  EXPECT_EQ(ids_of(*qwen2, "e\xCC\x81"), (Ids{0xC3, 0xA9}));
  EXPECT_EQ(qwen2->pad_id(), 258);
  EXPECT_EQ(qwen2->files().size(), 3u);
  files["tokenizer_config.json"] = R"({"tokenizer_class": "BartTokenizer"})";
  EXPECT_THROW(load_tokenizer_files(files, "f"), UserError);
}

TEST(TokenizerJson, StreamEqualsDecode) {
  Json json = small();
  json.set("added_tokens", Json::Array{added_token("<x>", 258)});
  const auto t = test::load(json);
  const Ids ids = ids_of(*t, "abc\xF0\x9F\xA6\x99<x>\xE2\x82\xAC!");
  for (const bool skip : {false, true}) {
    StreamDecoder stream(*t, skip);
    std::string all;
    for (const int32_t id : ids) all += stream.push(id);
    EXPECT_EQ(all + stream.finish(), t->decode(ids, skip));
  }
}

TEST(TokenizerJson, ForeignIdsAreNotSpecialAndRejected) {
  Json json = small();
  json.set("added_tokens", Json::Array{added_token("<x>", 258)});
  const auto t = test::load(json);
  EXPECT_TRUE(t->is_special(258));
  for (const int32_t id : {-1, INT32_MIN, 259, 1 << 24, INT32_MAX}) {
    EXPECT_FALSE(t->is_special(id)) << id;
    for (const bool skip : {false, true}) EXPECT_THROW(t->decode(Ids{'a', id}, skip), UserError);
  }
}

// The bytes tokenizer's own files, read back, yield the same ids.
TEST(TokenizerJson, ReadsFilesOfBytesTokenizer) {
  const auto bytes = make_bytes_tokenizer();
  const auto t = load_tokenizer_files(bytes->files(), "bytes");
  const std::string text = "h\xC3\xA9llo  <|endoftext|> w\n\xF0\x9F\xA6\x99";
  EXPECT_EQ(ids_of(*t, text), ids_of(*bytes, text));
  EXPECT_EQ(t->eos_id(), bytes->eos_id());
  EXPECT_EQ(t->pad_id(), bytes->pad_id());
  EXPECT_EQ(t->bos_id(), bytes->bos_id());
  EXPECT_EQ(t->num_ids(), bytes->num_ids());
}

}  // namespace
}  // namespace weft
