// base/sha256.cpp: FIPS 180-4, section 6.2, in its own notation.
#include "base/sha256.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace weft {
namespace {

constexpr std::array<uint32_t, 8> kInitial = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                              0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

constexpr std::array<uint32_t, 64> kRound = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

uint32_t read_big_endian(const uint8_t* in) {
  return static_cast<uint32_t>(in[0]) << 24 | static_cast<uint32_t>(in[1]) << 16 |
         static_cast<uint32_t>(in[2]) << 8 | in[3];
}

}  // namespace

Sha256::Sha256() : state_(kInitial) {}

void Sha256::compress(const uint8_t* block) {
  std::array<uint32_t, 64> w;
  for (size_t t = 0; t < 16; ++t) w[t] = read_big_endian(block + 4 * t);
  for (size_t t = 16; t < 64; ++t) {
    const uint32_t x = w[t - 15], y = w[t - 2];
    const uint32_t sigma0 = std::rotr(x, 7) ^ std::rotr(x, 18) ^ (x >> 3);
    const uint32_t sigma1 = std::rotr(y, 17) ^ std::rotr(y, 19) ^ (y >> 10);
    w[t] = sigma1 + w[t - 7] + sigma0 + w[t - 16];
  }
  auto [a, b, c, d, e, f, g, h] = state_;
  for (size_t t = 0; t < 64; ++t) {
    const uint32_t sum1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
    const uint32_t t1 = h + sum1 + ((e & f) ^ (~e & g)) + kRound[t] + w[t];
    const uint32_t sum0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
    const uint32_t t2 = sum0 + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
  }
  const std::array<uint32_t, 8> added = {a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < 8; ++i) state_[i] += added[i];
}

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
    compress(block_.data());
  }
  for (; left >= 64; at += 64, left -= 64) compress(at);
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
