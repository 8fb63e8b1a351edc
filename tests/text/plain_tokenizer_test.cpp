// tests/text/plain_tokenizer_test.cpp: Unigram and BPE of characters, by hand; T5's real files
// against ids from transformers 5.22 (tests/interop has many more).
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/random.h"
#include "tests/text/tokenizer_fixture.h"
#include "text/charsmap.h"
#include "text/normalize.h"
#include "text/split.h"
#include "text/stream_decoder.h"

namespace weft {
namespace {

using test::Ids;
using test::ids_of;
using test::kShared;

constexpr const char* kMark = "\xE2\x96\x81";

Json piece(const std::string& text, double score) { return Json::Array{Json(text), Json(score)}; }

// ids: 0 <unk>, 1 mark, 2 mark+a, 3 a, 4 b, 5 ab, 6 c, 7 mark+abc
Json unigram(bool byte_fallback = false) {
  const std::string mark = kMark;
  Json::Array vocab{piece("<unk>", 0), piece(mark, -3),         piece(mark + "a", -2),
                    piece("a", -4),    piece("b", -4),          piece("ab", -5),
                    piece("c", -4),    piece(mark + "abc", -20)};
  if (byte_fallback) {
    for (int b = 0; b < 256; b++) vocab.push_back(piece(fmt::format("<0x{:02X}>", b), -30));
  }
  const Json metaspace = Json::Object{
      {"type", "Metaspace"}, {"replacement", kMark}, {"prepend_scheme", "always"}, {"split", true}};
  return Json::Object{
      {"added_tokens", Json::Array{test::added_token("<unk>", 0)}},
      {"normalizer", nullptr},
      {"pre_tokenizer",
       Json::Object{
           {"type", "Sequence"},
           {"pretokenizers", Json::Array{Json::Object{{"type", "WhitespaceSplit"}}, metaspace}}}},
      {"post_processor", nullptr},
      {"decoder", metaspace},
      {"model", Json::Object{{"type", "Unigram"},
                             {"unk_id", 0},
                             {"vocab", vocab},
                             {"byte_fallback", byte_fallback}}}};
}

TEST(Unigram, ChoosesTheHighestScore) {
  const auto t = test::load(unigram());
  EXPECT_EQ(ids_of(*t, "a"), Ids{2});
  EXPECT_EQ(ids_of(*t, "ab"), (Ids{2, 4}));      // -6 beats mark + ab: -8
  EXPECT_EQ(ids_of(*t, "abc"), (Ids{2, 4, 6}));  // -10 beats the whole word: -20
  EXPECT_EQ(ids_of(*t, "bab"), (Ids{1, 4, 5}));  // ab -5 beats a b -8
  EXPECT_EQ(ids_of(*t, " a \n\t b  "), (Ids{2, 1, 4}));
  EXPECT_EQ(ids_of(*t, ""), Ids{});
  EXPECT_EQ(ids_of(*t, "   "), Ids{});
}

// A character without its own piece is unknown even where longer pieces begin with it.
TEST(Unigram, AnUnknownMayBeBetterThanALongPiece) {
  Json json = unigram();
  auto& vocab = test::entry(test::entry(json, "model"), "vocab").as_array();
  for (const Json& more : {piece("xyz", -50), piece("w", -45), piece("yzw", -1)})
    vocab.push_back(more);
  const auto t = test::load(json);                 // an unknown is 10 worse than the worst: -60
  EXPECT_EQ(ids_of(*t, "xyzw"), (Ids{1, 0, 10}));  // -61 beats xyz w: -95
  EXPECT_EQ(ids_of(*t, "xyz"), (Ids{1, 8}));
}

// Metaspace alone: blanks become marks, and none is added before an existing one.
TEST(Unigram, WhereAMarkIsAdded) {
  const auto with = [](const char* scheme, bool split) {
    Json json = unigram();
    json.set("pre_tokenizer", Json::Object{{"type", "Metaspace"},
                                           {"replacement", kMark},
                                           {"prepend_scheme", scheme},
                                           {"split", split}});
    test::entry(test::entry(json, "model"), "vocab")
        .as_array()
        .push_back(
            piece("b" + std::string(kMark) + "c", -1));  // 8: only where the text is not split
    json.set("added_tokens", Json::Array{test::added_token("<unk>", 0)});
    return test::load(json);
  };
  const std::string mark = kMark;
  const auto always = with("always", true), first = with("first", true),
             never = with("never", true);
  for (const auto* t : {&always, &first}) {
    EXPECT_EQ(ids_of(**t, "a b"), (Ids{2, 1, 4}));
    EXPECT_EQ(ids_of(**t, " a b"), (Ids{2, 1, 4}));
    EXPECT_EQ(ids_of(**t, mark + "a b"), (Ids{2, 1, 4}));
    EXPECT_EQ(ids_of(**t, "  a"), (Ids{1, 2}));
    EXPECT_EQ(ids_of(**t, "b c"), (Ids{1, 4, 1, 6}));
  }
  EXPECT_EQ(ids_of(*always, "a<unk>a"), (Ids{2, 0, 2}));
  EXPECT_EQ(ids_of(*first, "a<unk>a"), (Ids{2, 0, 3}));
  EXPECT_EQ(ids_of(*first, "<unk>a"), (Ids{0, 3}));
  EXPECT_EQ(ids_of(*never, "a b"), (Ids{3, 1, 4}));
  EXPECT_EQ(ids_of(*never, " a"), Ids{2});
  EXPECT_EQ(ids_of(*with("always", false), "b c"), (Ids{1, 8}));
}

TEST(Unigram, BlanksMayBeStripped) {
  const auto with = [](bool left, bool right) {
    Json json = unigram();
    json.set("normalizer",
             Json::Object{{"type", "Strip"}, {"strip_left", left}, {"strip_right", right}});
    json.set("pre_tokenizer", Json::Object{{"type", "Metaspace"},
                                           {"replacement", kMark},
                                           {"prepend_scheme", "never"},
                                           {"split", true}});
    return test::load(json);
  };
  const std::string text = "  a b  ";
  EXPECT_EQ(ids_of(*with(true, true), text), (Ids{3, 1, 4}));
  EXPECT_EQ(ids_of(*with(true, false), text), (Ids{3, 1, 4, 1, 1}));
  EXPECT_EQ(ids_of(*with(false, true), text), (Ids{1, 2, 1, 4}));
  EXPECT_EQ(ids_of(*with(false, false), text), (Ids{1, 2, 1, 4, 1, 1}));
  EXPECT_EQ(ids_of(*with(true, true), "   "), Ids{});
  EXPECT_EQ(ids_of(*with(true, true), "a"), Ids{3});
}

TEST(Unigram, AdjacentUnknownsAreMerged) {
  const auto t = test::load(unigram());
  EXPECT_EQ(ids_of(*t, "xyz"), (Ids{1, 0}));
  EXPECT_EQ(ids_of(*t, "axay\xC3\xA9"), (Ids{2, 0, 3, 0}));
}

TEST(Unigram, BytesReplaceUnknowns) {
  const auto t = test::load(unigram(true));
  EXPECT_EQ(ids_of(*t, "a\xC3\xA9"), (Ids{2, 8 + 0xC3, 8 + 0xA9}));
}

TEST(Unigram, DecodeDropsTheFirstMark) {
  const auto t = test::load(unigram());
  EXPECT_EQ(t->decode(Ids{2, 4, 1, 4}, false), "ab b");
  EXPECT_EQ(t->decode(Ids{0, 2}, false), "<unk> a");
  EXPECT_EQ(t->decode(Ids{0, 2}, true), "a");
}

TEST(Unigram, BadFilesAreRefused) {
  const auto refusal = [](const Json& json) -> std::string {
    try {
      test::load(json);
    } catch (const UserError& e) {
      return e.what();
    }
    return "";
  };
  Json bad = unigram();
  test::entry(bad, "model").set("unk_id", 99);
  EXPECT_NE(refusal(bad).find("unk_id is 99"), std::string::npos);
  bad = unigram();
  test::entry(bad, "model").set("vocab", Json::Array{});
  EXPECT_NE(refusal(bad).find("vocab"), std::string::npos);
  bad = unigram();
  test::entry(test::entry(bad, "pre_tokenizer"), "pretokenizers")
      .as_array()[1]
      .set("prepend_scheme", "first");
  EXPECT_NE(refusal(bad).find("prepend_scheme first after WhitespaceSplit"), std::string::npos);
  bad = unigram();
  test::entry(bad, "model").set("surprise", 1);
  EXPECT_NE(refusal(bad).find("surprise"), std::string::npos);
  bad = unigram();
  bad.set("normalizer", Json::Object{{"type", "Precompiled"}, {"precompiled_charsmap", "AAAA"}});
  EXPECT_NE(refusal(bad).find("character map"), std::string::npos);
}

// Llama 2's way: a mark before the text, no words, bytes for what is not in the vocabulary.
Json characters() {
  Json::Object vocab{{"<unk>", 0}, {"<s>", 1}};
  int next = 2;
  for (int b = 0; b < 256; b++) vocab.emplace_back(fmt::format("<0x{:02X}>", b), next++);
  const std::string mark = kMark;
  for (const std::string& token :
       {mark, std::string("a"), std::string("b"), mark + "a", mark + "ab"})
    vocab.emplace_back(token, next++);  // 258 ... 262
  const auto text = [](const char* s) { return Json(Json::Object{{"String", s}}); };
  return Json::Object{
      {"added_tokens", Json::Array{test::added_token("<s>", 1)}},
      {"normalizer",
       Json::Object{
           {"type", "Sequence"},
           {"normalizers",
            Json::Array{
                Json::Object{{"type", "Prepend"}, {"prepend", kMark}},
                Json::Object{{"type", "Replace"}, {"pattern", text(" ")}, {"content", kMark}}}}}},
      {"pre_tokenizer", nullptr},
      {"post_processor",
       Json::Object{
           {"type", "TemplateProcessing"},
           {"single",
            Json::Array{Json::Object{{"SpecialToken", Json::Object{{"id", "<s>"}, {"type_id", 0}}}},
                        Json::Object{{"Sequence", Json::Object{{"id", "A"}, {"type_id", 0}}}}}},
           {"special_tokens", Json::Object{{"<s>", Json::Object{{"ids", Json::Array{Json(1)}}}}}}}},
      {"decoder",
       Json::Object{
           {"type", "Sequence"},
           {"decoders",
            Json::Array{
                Json::Object{{"type", "Replace"}, {"pattern", text(kMark)}, {"content", " "}},
                Json::Object{{"type", "ByteFallback"}},
                Json::Object{{"type", "Fuse"}},
                Json::Object{{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}}},
      {"model", Json::Object{{"type", "BPE"},
                             {"unk_token", "<unk>"},
                             {"fuse_unk", true},
                             {"byte_fallback", true},
                             {"vocab", vocab},
                             {"merges", Json::Array{Json(mark + " a"), Json(mark + "a b")}}}}};
}

TEST(CharacterBpe, MergesCharactersAndFallsBackToBytes) {
  const auto t = test::load(characters());
  EXPECT_EQ(ids_of(*t, "ab ab"), (Ids{1, 262, 262}));
  EXPECT_EQ(ids_of(*t, "ba  a", false), (Ids{258, 260, 259, 258, 261}));
  EXPECT_EQ(ids_of(*t, "a\xC3\xA9\n", false), (Ids{261, 2 + 0xC3, 2 + 0xA9, 2 + 0x0A}));
}

// Id 0 is a token like others: it may be either half of a merge, or its result.
TEST(CharacterBpe, MergesOfTheFirstId) {
  const std::string mark = kMark;
  for (const std::string& first : {mark, std::string("a"), mark + "a"}) {
    Json json = characters();
    Json& vocab = test::entry(test::entry(json, "model"), "vocab");
    std::swap(test::entry(vocab, "<unk>"), test::entry(vocab, first));
    const auto t = test::load(json);
    EXPECT_EQ(ids_of(*t, "ab ab"), (Ids{1, 262, 262})) << first;
    EXPECT_EQ(ids_of(*t, "a", false), Ids{first == mark + "a" ? 0 : 261}) << first;
  }
}

// A merge may span a mark, so that text is not cut there.
TEST(CharacterBpe, MergesMayEndInAMark) {
  Json json = characters();
  Json& model = test::entry(json, "model");
  test::entry(model, "vocab").as_object().emplace_back(std::string("a") + kMark, 263);
  auto& merges = test::entry(model, "merges").as_array();
  merges.insert(merges.begin(), Json(std::string("a ") + kMark));
  EXPECT_EQ(ids_of(*test::load(json), "a a", false), (Ids{258, 263, 259}));
  EXPECT_EQ(ids_of(*test::load(characters()), "a a", false), (Ids{261, 261}));
}

TEST(CharacterBpe, RunsOfBytesAreTextOrNot) {
  const auto t = test::load(characters());
  EXPECT_EQ(t->decode(Ids{1, 262, 2 + 0xC3, 2 + 0xA9, 261}, false), "<s> ab\xC3\xA9 a");
  EXPECT_EQ(t->decode(Ids{262, 2 + 0xC3, 2 + 0xA9, 261}, true), "ab\xC3\xA9 a");
  // One bad byte spoils its whole run, as in the tokenizers package.
  EXPECT_EQ(t->decode(Ids{2 + 0xC3, 2 + 0xA9, 2 + 0xFF, 259}, false),
            "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"
            "a");
}

TEST(PlainTokenizer, StreamEqualsDecode) {
  const auto tokenizers = {test::load(characters()), test::load(unigram()),
                           test::load(unigram(true))};
  for (const auto& t : tokenizers) {
    for (uint64_t trial = 0; trial < 300; trial++) {
      Ids ids;
      for (uint64_t i = 0; i < 12; i++) {
        const double u = uniform_at(7, trial, i);
        ids.push_back(static_cast<int32_t>(u * t->num_ids()));
      }
      for (const bool skip : {false, true}) {
        StreamDecoder stream(*t, skip);
        std::string text;
        for (const int32_t id : ids) text += stream.push(id);
        text += stream.finish();
        ASSERT_EQ(text, t->decode(ids, skip));
      }
    }
  }
}

std::vector<std::string> words_of(SplitPattern pattern, std::string_view text) {
  std::vector<std::string> words;
  FalconCut falcon(text);
  const WordEnd word_end = word_end_of(pattern);
  for (size_t at = 0; at < text.size();) {
    const size_t end = word_end ? word_end(text, at) : falcon.word_end(at);
    words.emplace_back(text.substr(at, end - at));
    at = end;
  }
  return words;
}

using Words = std::vector<std::string>;

TEST(Split, Bloom) {
  EXPECT_EQ(words_of(SplitPattern::kBloom, "Hello, (big) world.."),
            (Words{"Hello", ", (", "big", ")", " world", ".."}));
  EXPECT_EQ(words_of(SplitPattern::kBloom, "a, b"), (Words{"a", ",", " b"}));
  EXPECT_EQ(words_of(SplitPattern::kBloom, "a  b"), (Words{"a", " ", " b"}));
  EXPECT_EQ(words_of(SplitPattern::kBloom, "x \xC3\xA0 \xE3\x80\x82 y"),
            (Words{"x", " \xC3\xA0", " \xE3\x80\x82", " y"}));
  EXPECT_EQ(words_of(SplitPattern::kBloom, "a((.b|c"), (Words{"a", "((.", "b", "|", "c"}));
}

TEST(Split, Falcon) {
  EXPECT_EQ(words_of(SplitPattern::kFalcon, "it's 12345!!"),
            (Words{"it", "'", "s", " ", "123", "45", "!!"}));
  EXPECT_EQ(words_of(SplitPattern::kFalcon, "ab  cd"), (Words{"ab", " ", " cd"}));
}

// Digits are searched among the byte symbols, of which six more are numbers: superscripts and
// fractions are cut off their first byte, and so are other characters that end in such a byte.
TEST(Split, FalconsNumberSymbols) {
  const auto falcon = [](std::string_view text) { return words_of(SplitPattern::kFalcon, text); };
  for (const char* byte : {"\xB2", "\xB3", "\xB9", "\xBC", "\xBD", "\xBE"}) {
    const std::string character = std::string("\xC2") + byte;
    EXPECT_EQ(falcon("5" + character + "x"), (Words{"5", "\xC2", byte, "x"})) << character;
  }
  EXPECT_EQ(falcon("\xC2\xB9"
                   "2"),
            (Words{"\xC2",
                   "\xB9"
                   "2"}));
  EXPECT_EQ(falcon("\xCE\xB2"
                   "12"),
            (Words{"\xCE", "\xB2", "12"}));  // beta
  for (const char* character : {"\xC2\xB1", "\xC2\xB4", "\xC2\xB8", "\xC2\xBB", "\xC2\xBF"}) {
    EXPECT_EQ(falcon(character), Words{character});
  }
  EXPECT_EQ(falcon("d\xC2\xBA"
                   "e"),
            (Words{"d\xC2\xBA"
                   "e"}));
}

TEST(Normalize, CompatibilityAndCase) {
  EXPECT_EQ(to_nfkc("\xEF\xAC\x81x"), "fix");   // the ligature fi
  EXPECT_EQ(to_nfkc("e\xCC\x81"), "\xC3\xA9");  // composed
  EXPECT_EQ(to_nfkc("\xE2\x91\xA0"), "1");      // circled 1
  EXPECT_EQ(to_nfkc("plain"), std::nullopt);
  EXPECT_EQ(to_lower("AbC\xC3\x89"), "abc\xC3\xA9");
  EXPECT_EQ(to_lower("\xC4\xB0"), "i\xCC\x87");  // I with a dot becomes two characters
  EXPECT_EQ(to_lower("abc"), std::nullopt);
}

#define NEEDS_SHARED() \
  if (!std::filesystem::exists(kShared / "tokenizers")) GTEST_SKIP() << "needs " << kShared

TEST(RealTokenizer, BothFilesOfT5) {
  NEEDS_SHARED();
  for (const char* folder : {"t5-small", "t5-v1_1"}) {
    const auto t = load_tokenizer(kShared / "tokenizers" / folder);
    EXPECT_EQ(t->num_ids(), 32100);
    EXPECT_EQ(t->eos_id(), 1);
    EXPECT_EQ(t->pad_id(), 0);
    EXPECT_EQ(ids_of(*t, "Hello world"), (Ids{8774, 296, 1}));
    EXPECT_EQ(ids_of(*t, "a\n\nb\tc"), (Ids{3, 9, 3, 115, 3, 75, 1}));
    EXPECT_EQ(ids_of(*t, "<extra_id_0> x</s> y"), (Ids{32099, 3, 226, 1, 3, 63, 1}));
    EXPECT_EQ(ids_of(*t, "h\xC3\xA9llo \xEF\xAC\x81 \xE2\x91\xA0 \xE2\x84\xA2"),
              (Ids{3, 107, 154, 195, 32, 361, 209, 3, 2305, 1}));
    EXPECT_EQ(t->decode(Ids{192, 4856, 1}, false), "two spaces</s>");
    // Mapped characters may be anywhere among unmapped ones.
    for (const char* text :
         {"\xEF\xAC\x81sh and chips", "chips and \xEF\xAC\x81sh", "a \xEF\xAC\x81sh"}) {
      std::string mapped = text;
      mapped.replace(mapped.find('\xEF'), 3, "fi");
      EXPECT_EQ(ids_of(*t, text), ids_of(*t, mapped)) << text;
    }
  }
}

TEST(RealTokenizer, DamagedSpieceIsRefused) {
  NEEDS_SHARED();
  const std::string whole = test::slurp(kShared / "tokenizers/t5-v1_1/spiece.model");
  for (const size_t size :
       {size_t{0}, size_t{1}, size_t{1000}, whole.size() / 2, whole.size() - 1}) {
    EXPECT_THROW(load_tokenizer_files({{"spiece.model", whole.substr(0, size)}}, "f"), UserError)
        << size;
  }
}

}  // namespace
}  // namespace weft
