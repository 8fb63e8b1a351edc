// tests/text/split_test.cpp: where each known pattern cuts words.
#include "text/split.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace weft {
namespace {

std::vector<std::string> words(SplitPattern pattern, std::string_view text) {
  std::vector<std::string> out;
  for (size_t at = 0; at < text.size();) {
    const size_t end = word_end_of(pattern)(text, at);
    EXPECT_GT(end, at);
    if (end <= at) break;
    out.emplace_back(text.substr(at, end - at));
    at = end;
  }
  return out;
}

using Words = std::vector<std::string>;

// Expected words are those of the tokenizers package 0.23.3 (tests/interop compares many more).
TEST(Split, Gpt2) {
  const auto split = [](std::string_view text) { return words(SplitPattern::kGpt2, text); };
  EXPECT_EQ(split("Hello world"), (Words{"Hello", " world"}));
  EXPECT_EQ(split("it's we'LL"), (Words{"it", "'s", " we", "'", "LL"}));
  EXPECT_EQ(split("a  b"), (Words{"a", " ", " b"}));
  EXPECT_EQ(split("a   "), (Words{"a", "   "}));
  EXPECT_EQ(split("a\n\n b"), (Words{"a", "\n\n", " b"}));
  EXPECT_EQ(split("a\n\nb"), (Words{"a", "\n", "\n", "b"}));
  EXPECT_EQ(split("x 123,4!?"), (Words{"x", " 123", ",", "4", "!?"}));
  EXPECT_EQ(split("\xC3\xA4\xC3\xB6 \xC2\xBD"), (Words{"\xC3\xA4\xC3\xB6", " \xC2\xBD"}));
  EXPECT_EQ(split("a\xE3\x80\x80\xE3\x80\x80z"), (Words{"a", "\xE3\x80\x80", "\xE3\x80\x80", "z"}));
  EXPECT_EQ(split(" "), (Words{" "}));
  EXPECT_EQ(split("''s"), (Words{"''", "s"}));
  // The long s (U+017F) is not an s here: case matters.
  EXPECT_EQ(split("it'\xC5\xBF"), (Words{"it", "'", "\xC5\xBF"}));
}

TEST(Split, Qwen2AndLlama3) {
  const auto qwen2 = [](std::string_view text) { return words(SplitPattern::kQwen2, text); };
  const auto llama3 = [](std::string_view text) { return words(SplitPattern::kLlama3, text); };
  EXPECT_EQ(qwen2("it's we'LL"), (Words{"it", "'s", " we", "'LL"}));
  EXPECT_EQ(qwen2("12345"), (Words{"1", "2", "3", "4", "5"}));
  EXPECT_EQ(llama3("12345"), (Words{"123", "45"}));
  EXPECT_EQ(qwen2("\tfoo(bar)"), (Words{"\tfoo", "(bar", ")"}));
  EXPECT_EQ(qwen2("a ,\n\nb"), (Words{"a", " ,\n\n", "b"}));
  EXPECT_EQ(qwen2("a \n \n  b"), (Words{"a", " \n \n", " ", " b"}));
  EXPECT_EQ(qwen2("a  1"), (Words{"a", " ", " ", "1"}));
  EXPECT_EQ(qwen2("'\xC5\xBF"
                  "x"),
            (Words{"'\xC5\xBF", "x"}));
  EXPECT_EQ(qwen2("a  "), (Words{"a", "  "}));
}

TEST(Split, AcceptsOnlyKnownPatterns) {
  for (const auto pattern : {SplitPattern::kGpt2, SplitPattern::kQwen2, SplitPattern::kLlama3})
    EXPECT_NE(pattern_name(pattern), "");
  EXPECT_EQ(pattern_of_regex(
                R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"),
            SplitPattern::kGpt2);
  EXPECT_EQ(pattern_of_regex(""), std::nullopt);
  EXPECT_EQ(pattern_of_regex("\\s+"), std::nullopt);
}

TEST(Split, BadBytesAreSigns) {
  EXPECT_EQ(words(SplitPattern::kQwen2, "a\xFF\xFE b\xC3"), (Words{"a", "\xFF\xFE", " b", "\xC3"}));
}

}  // namespace
}  // namespace weft
