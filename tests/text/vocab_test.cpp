// tests/text/vocab_test.cpp: finds every token, and nothing else.
#include "text/vocab.h"

#include <gtest/gtest.h>

#include <string>

#include "base/error.h"

namespace weft {
namespace {

TEST(Vocab, EmptyHasNothing) {
  for (const auto form : {Vocab::Form::kByteSymbols, Vocab::Form::kPlain}) {
    const Vocab vocab(form);
    EXPECT_EQ(vocab.find_bytes("a"), -1);
    EXPECT_EQ(vocab.find_text("a"), -1);
    EXPECT_EQ(vocab.bytes(0), std::nullopt);
    EXPECT_EQ(vocab.num_ids(), 0);
  }
}

// Lengths around 8, where the key is the bytes or their hash; trailing zero bytes matter.
TEST(Vocab, SimilarTokensAreDistinguished) {
  Vocab vocab(Vocab::Form::kPlain);
  std::vector<std::string> tokens;
  for (size_t length = 1; length <= 40; ++length) {
    tokens.push_back(std::string(length, 'a'));
    tokens.push_back(std::string(length - 1, 'a') + "b");
    tokens.push_back("b" + std::string(length, 'a'));
    tokens.push_back(std::string(length, 'a') + std::string(1, '\0'));
  }
  for (size_t i = 0; i < tokens.size(); ++i) {
    vocab.add(tokens[i], static_cast<int64_t>(3 * i), "f");
  }
  for (size_t i = 0; i < tokens.size(); ++i) {
    EXPECT_EQ(vocab.find_bytes(tokens[i]), static_cast<int32_t>(3 * i)) << tokens[i];
    EXPECT_EQ(vocab.bytes(static_cast<int32_t>(3 * i)), tokens[i]);
    EXPECT_EQ(vocab.bytes(static_cast<int32_t>(3 * i + 1)), std::nullopt);
    EXPECT_EQ(vocab.find_bytes(tokens[i] + "c"), -1);
  }
  EXPECT_EQ(vocab.size(), tokens.size());
  EXPECT_EQ(vocab.num_ids(), static_cast<int32_t>(3 * tokens.size() - 2));
  EXPECT_EQ(vocab.find_bytes(""), -1);
  EXPECT_EQ(vocab.bytes(-1), std::nullopt);
}

TEST(Vocab, DoublesAndIdsOutOfBoundsAreRefused) {
  Vocab vocab;
  vocab.add("a", 0, "f");
  vocab.add("\xE6\x97\xA5", 1, "f");  // not of the byte alphabet
  vocab.add("z", kMaxTokenId, "f");
  EXPECT_EQ(vocab.find_text("\xE6\x97\xA5"), 1);
  EXPECT_EQ(vocab.find_bytes("\xE6\x97\xA5"), -1) << "merging never produces it";
  EXPECT_THROW(vocab.add("a", 2, "f"), UserError);
  EXPECT_THROW(vocab.add("b", 0, "f"), UserError);
  EXPECT_THROW(vocab.add("\xE6\x97\xA5", 3, "f"), UserError);
  EXPECT_THROW(vocab.add("c", -1, "f"), UserError);
  EXPECT_THROW(vocab.add("d", kMaxTokenId + 1, "f"), UserError);
}

}  // namespace
}  // namespace weft
