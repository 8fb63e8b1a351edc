// base/sha256.cpp: padding (FIPS 180-4, section 5), and the message authentication code.
#include "base/sha256.h"

#include <algorithm>

#include "base/sha256_blocks.h"

namespace weft {
namespace {

constexpr std::array<uint32_t, 8> kInitial = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                              0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

}  // namespace

Sha256::Sha256() : state_(kInitial) {}

void Sha256::update(std::string_view bytes) {
  const auto* at = reinterpret_cast<const uint8_t*>(bytes.data());
  size_t left = bytes.size();
  const size_t filled = num_bytes_ % 64;
  num_bytes_ += left;
  if (filled != 0) {
    const size_t taken = std::min(left, 64 - filled);
    std::copy_n(at, taken, block_.data() + filled);
    at += taken, left -= taken;
    if (filled + taken < 64) return;
    sha256_blocks(state_.data(), block_.data(), 1);
  }
  sha256_blocks(state_.data(), at, left / 64);
  at += left / 64 * 64, left %= 64;
  std::copy_n(at, left, block_.data());
}

Digest Sha256::finish() {
  const uint64_t num_bits = num_bytes_ * 8;
  const size_t filled = num_bytes_ % 64;
  std::array<char, 72> padding{};
  const size_t zeros = (filled < 56 ? 56 : 120) - filled;
  padding[0] = static_cast<char>(0x80);
  for (size_t i = 0; i < 8; ++i) padding[zeros + i] = static_cast<char>(num_bits >> (56 - 8 * i));
  update({padding.data(), zeros + 8});
  Digest out;
  for (size_t i = 0; i < 32; ++i) {
    out[i] = static_cast<uint8_t>(state_[i / 4] >> (24 - 8 * (i % 4)));
  }
  return out;
}

Digest sha256(std::string_view bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.finish();
}

HmacSha256::HmacSha256(std::string_view key) {
  const Digest hashed = sha256(key);
  if (key.size() > 64) key = bytes_of(hashed);
  std::array<char, 64> inner, outer;
  for (size_t i = 0; i < 64; ++i) {
    const char k = i < key.size() ? key[i] : '\0';
    inner[i] = static_cast<char>(k ^ 0x36);
    outer[i] = static_cast<char>(k ^ 0x5c);
  }
  inner_.update({inner.data(), inner.size()});
  outer_.update({outer.data(), outer.size()});
}

Digest HmacSha256::finish() {
  const Digest inner = inner_.finish();
  outer_.update(bytes_of(inner));
  return outer_.finish();
}

Digest hmac_sha256(std::string_view key, std::string_view message) {
  HmacSha256 mac(key);
  mac.update(message);
  return mac.finish();
}

bool equal_in_constant_time(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  volatile uint8_t difference = 0;  // volatile: the loop cannot end early
  for (size_t i = 0; i < a.size(); ++i) {
    difference = static_cast<uint8_t>(difference | static_cast<uint8_t>(a[i] ^ b[i]));
  }
  return difference == 0;
}

}  // namespace weft
