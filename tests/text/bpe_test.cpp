// tests/text/bpe_test.cpp: merging, against a reference that follows the definition literally.
#include <gtest/gtest.h>

#include <map>
#include <thread>

#include "base/random.h"
#include "tests/text/tokenizer_fixture.h"

namespace weft {
namespace {

using test::Ids;
using test::ids_of;
using test::Merge;

// As long as a pair has a rank: merge the lowest, the leftmost of equals.
Ids merged_by_definition(std::string_view word, const std::vector<Merge>& merges) {
  std::map<std::string, int> ids;
  std::map<Merge, int> ranks;
  for (size_t i = 0; i < merges.size(); i++) {
    ranks[merges[i]] = static_cast<int>(i);
    ids[merges[i].first + merges[i].second] = 256 + static_cast<int>(i);
  }
  std::vector<std::string> symbols;
  for (const char c : word) symbols.emplace_back(1, c);
  while (true) {
    int lowest = INT32_MAX;
    size_t at = 0;
    for (size_t i = 0; i + 1 < symbols.size(); i++) {
      const auto found = ranks.find({symbols[i], symbols[i + 1]});
      if (found == ranks.end() || found->second >= lowest) continue;
      lowest = found->second;
      at = i;
    }
    if (lowest == INT32_MAX) break;
    symbols[at] += symbols[at + 1];
    symbols.erase(symbols.begin() + static_cast<long>(at) + 1);
  }
  Ids out;
  for (const std::string& s : symbols)
    out.push_back(s.size() == 1 ? static_cast<unsigned char>(s[0]) : ids.at(s));
  return out;
}

const std::vector<Merge> kMerges{{"b", "c"},   {"a", "b"},    {"a", "bc"},  {"a", "a"},
                                 {"aa", "aa"}, {"bc", "abc"}, {"ab", "c"},  {"c", "a"},
                                 {"ca", "b"},  {"aaaa", "a"}, {"cab", "ca"}};

TEST(Bpe, MergesAsDefined) {
  // "abc" is made by the first and third merge; ab + c, which comes later, gives the same text.
  std::vector<Merge> merges = kMerges;
  merges.erase(merges.begin() + 6);  // one text can be one token only
  const auto t = test::load(test::small_tokenizer(merges));
  for (uint64_t i = 0; i < 4000; i++) {
    const size_t length = i % 100 == 0 ? 400 : 1 + i % 70;  // both sides of short and long
    std::string word;
    for (uint64_t k = 0; k < length; k++) word += "abc"[philox(1, i, k)[0] % 3];
    ASSERT_EQ(ids_of(*t, word), merged_by_definition(word, merges)) << word;
  }
}

// A duplicate merge has the rank of its last occurrence.
TEST(Bpe, TheLastDuplicateMergeWins) {
  Json json = test::small_tokenizer({{"a", "b"}, {"b", "c"}});
  EXPECT_EQ(ids_of(*test::load(json), "abc"), (Ids{256, 'c'}));
  test::entry(test::entry(json, "model"), "merges").as_array().push_back("a b");
  EXPECT_EQ(ids_of(*test::load(json), "abc"), (Ids{'a', 257}));
}

// Merging a + b consumes the b of the pair (b, c), which was a candidate too. Merged all the same,
// it would come between c and d, and c would not see that d became de.
TEST(Bpe, AMergeInvalidatesItsNeighboursPairs) {
  const std::vector<Merge> merges{{"a", "b"}, {"b", "c"}, {"d", "e"}, {"c", "de"}};
  const auto t = test::load(test::small_tokenizer(merges));
  for (const int times : {1, 9, 10, 60}) {  // both sides of short and long
    std::string word;
    Ids wanted;
    for (int i = 0; i < times; ++i) {
      word += "abcde";
      wanted.insert(wanted.end(), {256, 259});
    }
    EXPECT_EQ(merged_by_definition(word, merges), wanted);
    EXPECT_EQ(ids_of(*t, word), wanted) << word;
  }
}

// A token that merging its own bytes does not yield: "ab" + "c" is a token, but b + c comes first.
TEST(Bpe, TokenThatMergingDoesNotYield) {
  Json json = test::small_tokenizer({{"b", "c"}, {"a", "b"}, {"ab", "c"}});
  EXPECT_EQ(ids_of(*test::load(json), "abc"), (Ids{'a', 256}));
  EXPECT_EQ(ids_of(*test::load(json), "abc abc"), (Ids{'a', 256, ' ', 'a', 256}));
  test::entry(json, "model").set("ignore_merges", true);
  EXPECT_EQ(ids_of(*test::load(json), "abc"), (Ids{258}));
}

TEST(Bpe, LongRunsAreNotQuadratic) {
  std::vector<Merge> merges;
  std::string run = byte_symbol(' ');
  for (int i = 0; i < 6; i++, run += run) merges.emplace_back(run, run);
  const auto t = test::load(test::small_tokenizer(merges));
  const Ids ids = ids_of(*t, std::string(1 << 20, ' '));
  EXPECT_EQ(ids, Ids((1 << 20) / 64, 261));
}

TEST(Bpe, UnknownBytesAreDropped) {
  Json json = test::small_tokenizer({{"a", "b"}});
  Json::Object& vocab = test::entry(test::entry(json, "model"), "vocab").as_object();
  std::erase_if(vocab, [](const auto& e) { return e.first == "x"; });
  EXPECT_EQ(ids_of(*test::load(json), "axb"), Ids{256});
}

TEST(Bpe, MergesAsPairs) {
  Json json = test::small_tokenizer({{"b", "c"}, {"a", "bc"}});
  test::entry(json, "model")
      .set("merges", Json::Array{Json::Array{"b", "c"}, Json::Array{"a", "bc"}});
  EXPECT_EQ(ids_of(*test::load(json), "abcbc"), (Ids{257, 256}));
}

TEST(Bpe, ManyThreadsAgree) {
  const auto t = test::load(test::small_tokenizer({{"b", "c"}, {"a", "b"}, {"ab", "c"}}));
  const std::string text = "abc bc ab abcabc bcbc cab";
  const Ids expected =
      ids_of(*test::load(test::small_tokenizer({{"b", "c"}, {"a", "b"}, {"ab", "c"}})), text);
  std::vector<Ids> results(8);
  std::vector<std::thread> threads;
  for (Ids& result : results)
    threads.emplace_back([&] {
      for (int i = 0; i < 200; i++) result = ids_of(*t, text);
    });
  for (std::thread& thread : threads) thread.join();
  for (const Ids& result : results) EXPECT_EQ(result, expected);
}

TEST(Bpe, DecodeRoundTrips) {
  const auto t =
      test::load(test::small_tokenizer({{"b", "c"}, {"\xC4\xA0", "a"}, {"\xC3\x83", "\xC2\xA9"}}));
  for (uint64_t i = 0; i < 2000; i++) {
    std::string text;
    for (uint64_t k = 0; k < i % 40; k++) {
      const RandomBlock r = philox(2, i, k);
      const uint32_t top = r[1] % 3 == 0 ? 0x80 : r[1] % 3 == 1 ? 0x800 : 0x30000;
      const uint32_t code = r[0] % top;
      if (code >= 0xD800 && code < 0xE000) continue;
      std::string c;
      if (code < 0x80)
        c = {static_cast<char>(code)};
      else if (code < 0x800)
        c = {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 63))};
      else if (code >= 0x10000)
        c = "\xF0\x9F\xA6\x99";
      text += c;
    }
    ASSERT_EQ(t->decode(ids_of(*t, text), false), text);
  }
}

}  // namespace
}  // namespace weft
