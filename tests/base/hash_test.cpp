// tests/base/hash_test.cpp: XXH64's published values.
#include "base/hash.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/hash_stream.h"

namespace weft {
namespace {

TEST(Hash, PublishedValues) {
  EXPECT_EQ(hash_text(""), 0xef46db3751d8e999u);
  EXPECT_EQ(hash_text("a"), 0xd24ec4f1a98c6e5bu);
  EXPECT_EQ(hash_text("abc"), 0x44bc2cf5ad770999u);
  EXPECT_NE(hash_text("abc", 1), hash_text("abc"));
}

TEST(Hash, SixteenDigits) {
  EXPECT_EQ(hash_hex(0), "0000000000000000");
  EXPECT_EQ(hash_hex(0x44bc2cf5ad770999u), "44bc2cf5ad770999");
}

// Pieces of any size give the hash of the whole.
TEST(HashStream, EqualsTheHashOfTheWhole) {
  std::string bytes;
  for (int i = 0; i < 1000; ++i) bytes += static_cast<char>(i * 37);
  for (size_t piece : {1, 7, 32, 999, 1000}) {
    HashStream hash;
    for (size_t at = 0; at < bytes.size(); at += piece)
      hash.add(bytes.data() + at, std::min(piece, bytes.size() - at));
    EXPECT_EQ(hash.value(), hash_text(bytes)) << piece;
  }
  EXPECT_EQ(HashStream().value(), hash_text(""));
}

}  // namespace
}  // namespace weft
