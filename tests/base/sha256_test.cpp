// tests/base/sha256_test.cpp: the vectors of FIPS 180-4, NIST's CAVP and RFC 4231.
#include "base/sha256.h"

#include <gtest/gtest.h>

#include <string>

#include "base/sha256_blocks.h"
#include "tests/hex.h"

namespace weft::testing {
namespace {

std::string hex(const Digest& digest) { return testing::hex(bytes_of(digest)); }

TEST(Sha256, StandardVectors) {
  EXPECT_EQ(hex(sha256("")), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hex(sha256("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hex(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hex(sha256("abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmn"
                       "hijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu")),
            "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1");
  EXPECT_EQ(hex(sha256(std::string(1'000'000, 'a'))),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  EXPECT_EQ(hex(sha256("\xbd")),
            "68325720aabd7c82f30f554b313d0570c95accbb7dc4b5aae11204c08ffe732b");
}

// Every length around a block's end, in every cut: padding and buffering do not depend on them.
TEST(Sha256, PiecesGiveTheSameDigest) {
  for (size_t size = 0; size <= 200; ++size) {
    std::string text(size, '\0');
    for (size_t i = 0; i < size; ++i) text[i] = static_cast<char>(i * 7 + size);
    const std::string_view view = text;
    for (const size_t cut : {size_t{1}, size / 3, size_t{55}, size_t{63}, size_t{64}}) {
      Sha256 hash;
      hash.update(view.substr(0, std::min(cut, size)));
      hash.update(view.substr(std::min(cut, size)));
      EXPECT_EQ(hash.finish(), sha256(view)) << size << " cut at " << cut;
    }
  }
}

TEST(HmacSha256, VectorsOfRfc4231) {
  EXPECT_EQ(hex(hmac_sha256(std::string(20, '\x0b'), "Hi There")),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(hex(hmac_sha256("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(hex(hmac_sha256(std::string(20, '\xaa'), std::string(50, '\xdd'))),
            "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
  EXPECT_EQ(hex(hmac_sha256(std::string(131, '\xaa'),
                            "Test Using Larger Than Block-Size Key - Hash Key First")),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
  EXPECT_EQ(hex(hmac_sha256(std::string(131, '\xaa'),
                            "This is a test using a larger than block-size key and a larger than "
                            "block-size data. The key needs to be hashed before being used by the "
                            "HMAC algorithm.")),
            "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2");
}

TEST(HmacSha256, AKeyServesManyMessages) {
  const HmacSha256 key("key");
  for (const std::string text : {"", "a", "another"}) {
    HmacSha256 mac = key;
    mac.update(text);
    EXPECT_EQ(mac.finish(), hmac_sha256("key", text));
  }
}

// Two ways to the same numbers: the processor's instructions, where it has them, and ours.
TEST(Sha256Blocks, WithAndWithoutInstructions) {
  std::string bytes;
  for (int i = 0; i < 64 * 9; ++i) bytes += static_cast<char>(i * 37 + i / 64);
  const auto* at = reinterpret_cast<const uint8_t*>(bytes.data());
  std::array<uint32_t, 8> a = {1, 2, 3, 4, 5, 6, 7, 0xffffffff}, b = a;
  for (const size_t count : {0u, 1u, 2u, 9u}) {
    sha256_blocks(a.data(), at, count);
    sha256_blocks_portable(b.data(), at, count);
    EXPECT_EQ(a, b) << count;
  }
}

TEST(ConstantTime, ComparesAllBytes) {
  EXPECT_TRUE(equal_in_constant_time("", ""));
  EXPECT_TRUE(equal_in_constant_time("abc", "abc"));
  EXPECT_FALSE(equal_in_constant_time("abc", "abd"));
  EXPECT_FALSE(equal_in_constant_time("abc", "xbc"));
  EXPECT_FALSE(equal_in_constant_time("abc", "ab"));
}

}  // namespace
}  // namespace weft::testing
