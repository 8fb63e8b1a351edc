// tests/generate/stop_ids_test.cpp: where the end of a sequence is defined.
#include "generate/stop_ids.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/file.h"
#include "tests/io/temporary_folder.h"

namespace weft {
namespace {

using Ids = std::vector<int32_t>;

TEST(StopIds, FromTokenizerAndGenerationConfigEachOnce) {
  const auto tokenizer = make_bytes_tokenizer();
  const Json config = parse_json(R"({"eos_token_id": 9})", "c");
  const Json generation = parse_json(R"({"eos_token_id": [256, 3]})", "g");
  EXPECT_EQ(find_stop_ids(tokenizer.get(), config, &generation), (Ids{256, 3}));
}

TEST(StopIds, ConfigWhereGenerationConfigLacksIt) {
  const Json config = parse_json(R"({"eos_token_id": 9})", "c");
  const Json silent = parse_json("{}", "g");
  EXPECT_EQ(find_stop_ids(nullptr, config, nullptr), Ids{9});
  EXPECT_EQ(find_stop_ids(nullptr, config, &silent), Ids{9});
  EXPECT_EQ(find_stop_ids(nullptr, parse_json(R"({"eos_token_id": null})", "c"), nullptr), Ids{});
  const Json none = parse_json(R"({"eos_token_id": -1})", "g");  // as of other token ids
  EXPECT_EQ(find_stop_ids(nullptr, config, &none), Ids{9});
}

TEST(StopIds, NeitherTheyNorUnknownIdsHaveText) {
  const auto tokenizer = make_bytes_tokenizer();
  EXPECT_TRUE(has_text('a', *tokenizer, {'b'}));
  EXPECT_FALSE(has_text('b', *tokenizer, {'b'}));
  EXPECT_FALSE(has_text(tokenizer->num_ids(), *tokenizer, {}));
  EXPECT_EQ(decode_continuation({'a', 780, 'c', 256, 'b'}, *tokenizer, {'b'}), "ac");
}

TEST(StopIds, AreReadFromTheFolder) {
  const testing::TemporaryFolder folder;
  const auto tokenizer = make_bytes_tokenizer();
  const Json config = parse_json(R"({"eos_token_id": 9})", "c");
  const auto path = folder / "generation_config.json";
  EXPECT_EQ(read_stop_ids(*tokenizer, config, folder.path()), (Ids{256, 9}));
  write_file_atomic(path, R"({"eos_token_id": 7})");
  EXPECT_EQ(read_stop_ids(*tokenizer, config, folder.path()), (Ids{256, 7}));
  for (const char* text : {"[]", "5"}) {
    write_file_atomic(path, text);
    const std::string e =
        testing::error_of<UserError>([&] { read_stop_ids(*tokenizer, config, folder.path()); });
    EXPECT_NE(e.find("generation_config.json holds"), std::string::npos) << e;
    EXPECT_NE(e.find("wanted an object"), std::string::npos) << e;
  }
  std::filesystem::resize_file(path, (size_t{1} << 26) + 1);  // larger than any such file
  const std::string message =
      testing::error_of<UserError>([&] { read_stop_ids(*tokenizer, config, folder.path()); });
  EXPECT_NE(message.find("more than the 67108864 we read"), std::string::npos) << message;
}

// A continuation's text has no special tokens, in which they would be searched.
TEST(StopIds, SpecialTokensAmongTheStopStrings) {
  const auto tokenizer = load_tokenizer_files(make_bytes_tokenizer()->files(), "bytes");
  std::vector<std::string> stops = {"ab", "<|endoftext|>", "<|"};
  Ids ids = {7};
  move_special_stops(*tokenizer, &stops, &ids);
  EXPECT_EQ(stops, (std::vector<std::string>{"ab", "<|"}));
  EXPECT_EQ(ids, (Ids{7, 256}));
  stops = {"a<|endoftext|>"};
  const std::string e =
      testing::error_of<UserError>([&] { move_special_stops(*tokenizer, &stops, &ids); });
  EXPECT_NE(e.find("has a special token among others"), std::string::npos) << e;
}

// A character that is not in the vocabulary becomes <unk>, which nobody has written.
TEST(StopIds, UnknownCharactersAreNamedAsSuch) {
  constexpr const char* kUnigram = R"({
    "added_tokens": [{"id": 0, "content": "<unk>", "special": true, "lstrip": false,
                      "rstrip": false, "single_word": false, "normalized": false}],
    "normalizer": null, "post_processor": null,
    "pre_tokenizer": {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always",
                      "split": true},
    "decoder": {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always",
                "split": true},
    "model": {"type": "Unigram", "unk_id": 0, "byte_fallback": false,
              "vocab": [["<unk>", 0], ["\u2581", -3], ["a", -4]]}})";
  const auto tokenizer = load_tokenizer_files({{"tokenizer.json", kUnigram}}, "unigram");
  std::vector<std::string> stops = {"a"};
  Ids ids;
  move_special_stops(*tokenizer, &stops, &ids);
  EXPECT_EQ(stops, std::vector<std::string>{"a"});
  stops = {"<"};
  const std::string e =
      testing::error_of<UserError>([&] { move_special_stops(*tokenizer, &stops, &ids); });
  EXPECT_NE(e.find("has characters that the tokenizer does not know"), std::string::npos) << e;
  stops = {"<unk>"};
  move_special_stops(*tokenizer, &stops, &ids);
  EXPECT_EQ(ids, Ids{0});
}

TEST(StopIds, NonsenseIsRefused) {
  for (const char* text : {R"({"eos_token_id": "x"})", R"({"eos_token_id": [1, -2]})",
                           R"({"eos_token_id": 2147483648})", R"({"eos_token_id": [true]})",
                           R"({"eos_token_id": 2.5})"}) {
    const std::string message = testing::error_of<UserError>(
        [&] { find_stop_ids(nullptr, parse_json(text, "c"), nullptr); });
    EXPECT_NE(message.find("config.json: eos_token_id holds"), std::string::npos) << message;
  }
  const Json largest = parse_json(R"({"eos_token_id": [0, 2147483647]})", "c");
  EXPECT_EQ(find_stop_ids(nullptr, largest, nullptr), (Ids{0, 2147483647}));
}

}  // namespace
}  // namespace weft
