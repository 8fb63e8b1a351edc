// tests/base/hash_test.cpp: XXH64's published values.
#include "base/hash.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace weft
