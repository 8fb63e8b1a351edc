// tests/base/poly1305_test.cpp: the vectors of RFC 8439, and tags that OpenSSL has made.
#include "base/poly1305.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "tests/hex.h"

namespace weft::testing {
namespace {

std::string hex(const Poly1305Tag& tag) { return testing::hex(bytes_of(tag)); }

Digest key_of(uint8_t r, uint8_t s) {
  Digest key{};
  key[0] = r;
  std::fill(key.begin() + 16, key.end(), s);
  return key;
}

TEST(Poly1305, TheVectorOfTheStandard) {
  const Digest key = {0x85, 0xd6, 0xbe, 0x78, 0x57, 0x55, 0x6d, 0x33, 0x7f, 0x44, 0x52,
                      0xfe, 0x42, 0xd5, 0x06, 0xa8, 0x01, 0x03, 0x80, 0x8a, 0xfb, 0x0d,
                      0xb2, 0xfd, 0x4a, 0xbf, 0xf6, 0xaf, 0x41, 0x49, 0xf5, 0x1b};
  EXPECT_EQ(hex(poly1305(key, "Cryptographic Forum Research Group")),
            "a8061dc1305136c6c22b8baf0c0127a9");
}

// Sums that reach the modulus, 2^128 or 2^130.
TEST(Poly1305, SumsAtTheEdges) {
  const std::string ones(16, '\xff'), zeros(15, '\0');
  Digest highest;
  highest.fill(0xff);
  EXPECT_EQ(hex(poly1305(highest, std::string(64, '\xff'))), "900fe32bc15fa8d7bca8efe4c7e37eb1");
  EXPECT_EQ(hex(poly1305(highest, std::string(80, '\xff'))), "b7dab159c89efa2ff98061493f57fa40");
  EXPECT_EQ(hex(poly1305(key_of(2, 0), ones)), "03000000000000000000000000000000");
  EXPECT_EQ(hex(poly1305(key_of(2, 0xff), "\2" + zeros)), "03000000000000000000000000000000");
  EXPECT_EQ(hex(poly1305(key_of(2, 0), "\xfd" + std::string(15, '\xff'))),
            "faffffffffffffffffffffffffffffff");
  EXPECT_EQ(hex(poly1305(key_of(1, 0), ones + "\xf0" + std::string(15, '\xff') + "\x11" + zeros)),
            "05000000000000000000000000000000");
  EXPECT_EQ(
      hex(poly1305(key_of(1, 0), ones + "\xfb" + std::string(15, '\xfe') + std::string(16, '\1'))),
      "00000000000000000000000000000000");
}

// `openssl mac ... POLY1305` of 200 messages of 0 to 199 bytes and of one of 100,000.
TEST(Poly1305, TagsOfAnotherImplementation) {
  std::string tags;
  for (size_t n = 0; n < 200; ++n) {
    std::string message;
    for (size_t i = 0; i < n; ++i) message += static_cast<char>(i * 7 + n);
    const Poly1305Tag tag = poly1305(sha256(std::string(1, static_cast<char>(n))), message);
    tags.append(tag.begin(), tag.end());
  }
  const Digest of_all = {0xbd, 0xf0, 0x6d, 0xc5, 0xbe, 0x9d, 0x9f, 0x52, 0xfa, 0x86, 0xe2,
                         0x02, 0xd2, 0x6e, 0xf8, 0xa7, 0xd9, 0x31, 0x51, 0x9f, 0x92, 0x00,
                         0xd7, 0x40, 0x32, 0x7d, 0x08, 0xb6, 0x31, 0xf2, 0x80, 0x6b};
  EXPECT_EQ(sha256(tags), of_all);
  std::string large;
  for (size_t i = 0; i < 100'000; ++i) large += static_cast<char>(i * i % 251);
  EXPECT_EQ(hex(poly1305(sha256("key"), large)), "d204a7da4e60e155af59d6b5b3ef652b");
}

}  // namespace
}  // namespace weft::testing
