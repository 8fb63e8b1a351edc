// tests/generate/stop_strings_test.cpp: text ends before a stop string, however it arrives.
#include "generate/stop_strings.h"

#include <gtest/gtest.h>

#include "generate/generator.h"
#include "tests/generate/tiny_model.h"

namespace weft {
namespace {

using Strings = std::vector<std::string>;

// Pushes the text in pieces of n bytes.
std::string in_pieces(const std::string& text, const Strings& stops, size_t n) {
  StopFilter filter(stops);
  std::string out;
  for (size_t at = 0; at < text.size(); at += n) out += filter.push(text.substr(at, n));
  return out + filter.finish();
}

TEST(StopFilter, EndsBeforeTheFirstStopString) {
  const std::string text = "one; two\n\nthree; four";
  const std::pair<Strings, std::string> cases[] = {
      {{";"}, "one"},
      {{"\n\n"}, "one; two"},
      {{"three", "\n"}, "one; two"},
      {{"o; f"}, text},
      {{"four"}, "one; two\n\nthree; "},
      {{"two\n\nt", "wo"}, "one; t"},
      {{"wo", "two"}, "one; "},
      {{"one"}, ""},
      {{"one; two\n\nthree; four!"}, text},
      {{}, text},
  };
  for (const auto& [stops, wanted] : cases) {
    EXPECT_EQ(before_stop(text, stops), wanted);
    for (size_t n = 1; n <= text.size(); ++n) EXPECT_EQ(in_pieces(text, stops, n), wanted) << n;
  }
}

// A begin that repeats: "aab" in "aaab" is found although its first try fails.
TEST(StopFilter, FindsOverlappingBegins) {
  for (size_t n = 1; n <= 5; ++n) {
    EXPECT_EQ(in_pieces("xaaabc", {"aab"}, n), "xa") << n;
    EXPECT_EQ(in_pieces("xababac", {"abac"}, n), "xab") << n;
  }
}

TEST(StopFilter, HoldsBackOnlyAPossibleBegin) {
  const Strings stops = {"END."};
  StopFilter filter(stops);
  EXPECT_EQ(filter.push("a E"), "a ");
  EXPECT_EQ(filter.push("N"), "");
  EXPECT_EQ(filter.push("x"), "ENx");
  EXPECT_EQ(filter.push("END"), "");
  EXPECT_FALSE(filter.is_stopped());
  EXPECT_EQ(filter.push(". b"), "");
  EXPECT_TRUE(filter.is_stopped());
  EXPECT_EQ(filter.push("c"), "");
  EXPECT_EQ(filter.finish(), "");
}

// Tokens after the stop string are not generated, and those of other rows do not change.
TEST(StopStrings, ARowEndsWithTheTokenThatCompletesIt) {
  const auto model = testing::tiny_model();
  const auto tokenizer = make_bytes_tokenizer();
  ThreadPool pool(2);
  Generator generator(*model, {4, 0, Dtype::kF32}, ref_kernels(), &pool, testing::load_random);
  const auto prompts = testing::make_prompts(3);
  SampleOptions sample;
  sample.max_new_tokens = 12;
  const auto free = generator.generate(prompts, sample);
  ASSERT_EQ(free[1].size(), 12u);
  // Two tokens that follow each other in row 1, as text.
  const Strings stops = {std::string{static_cast<char>(free[1][4]), static_cast<char>(free[1][5])}};
  size_t end = 1;
  while (free[1][end - 1] != free[1][4] || free[1][end] != free[1][5]) ++end;
  StopStrings watch(*tokenizer, sample.stop_ids, stops, prompts.size());
  GenerateEvents events;
  events.ends = [&](size_t prompt, int32_t id) { return prompt == 1 && watch.ends(prompt, id); };
  const auto got = generator.generate(prompts, sample, events);
  EXPECT_EQ(got[0], free[0]);
  EXPECT_EQ(got[2], free[2]);
  EXPECT_EQ(got[1], std::vector<int32_t>(free[1].begin(),
                                         free[1].begin() + static_cast<std::ptrdiff_t>(end + 1)));
}

}  // namespace
}  // namespace weft
