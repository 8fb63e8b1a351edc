// base/poly1305.cpp: a polynomial modulo 2^130 - 5, in limbs of 44, 44 and 42 bits.
#include "base/poly1305.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>

namespace weft {
namespace {

__extension__ typedef unsigned __int128 Wide;

constexpr uint64_t kMask44 = (uint64_t{1} << 44) - 1, kMask42 = (uint64_t{1} << 42) - 1;

struct Limbs {
  uint64_t low, middle, high;  // weights 1, 2^44, 2^88
};

uint64_t read_word(const uint8_t* at) {
  static_assert(std::endian::native == std::endian::little);
  uint64_t word = 0;
  std::memcpy(&word, at, sizeof word);
  return word;
}

Limbs split_limbs(uint64_t low, uint64_t high) {
  return {low & kMask44, (low >> 44 | high << 20) & kMask44, high >> 24};
}

// What exceeds 2^130 comes back times 5. A little may remain above the limbs' widths.
void carry(Limbs* sum) {
  sum->middle += sum->low >> 44, sum->low &= kMask44;
  sum->high += sum->middle >> 44, sum->middle &= kMask44;
  sum->low += 5 * (sum->high >> 42), sum->high &= kMask42;
}

// 16 bytes and 2^128 times `top`.
Limbs read_block(const uint8_t* at, uint64_t top) {
  Limbs block = split_limbs(read_word(at), read_word(at + 8));
  block.high += top << 40;
  return block;
}

Limbs add(const Limbs& a, const Limbs& b) {
  return {a.low + b.low, a.middle + b.middle, a.high + b.high};
}

struct Products {
  Wide low, middle, high;
};

// Those of weight 2^132 and more come back times 20.
Products multiply(const Limbs& a, const Limbs& r) {
  const uint64_t middle20 = 20 * r.middle, high20 = 20 * r.high;
  return {Wide{a.low} * r.low + Wide{a.middle} * high20 + Wide{a.high} * middle20,
          Wide{a.low} * r.middle + Wide{a.middle} * r.low + Wide{a.high} * high20,
          Wide{a.low} * r.high + Wide{a.middle} * r.middle + Wide{a.high} * r.low};
}

Limbs reduce_products(Products p) {
  p.middle += static_cast<uint64_t>(p.low >> 44);
  p.high += static_cast<uint64_t>(p.middle >> 44);
  Limbs sum{static_cast<uint64_t>(p.low) & kMask44, static_cast<uint64_t>(p.middle) & kMask44,
            static_cast<uint64_t>(p.high) & kMask42};
  sum.low += 5 * static_cast<uint64_t>(p.high >> 42);
  sum.middle += sum.low >> 44, sum.low &= kMask44;
  return sum;
}

// The remainder itself, not one that is larger by the modulus.
Limbs reduce(Limbs sum) {
  carry(&sum);
  carry(&sum);
  Limbs less{sum.low + 5, sum.middle, sum.high};
  less.middle += less.low >> 44, less.low &= kMask44;
  less.high += less.middle >> 44, less.middle &= kMask44;
  const uint64_t takes_less = 0 - (less.high >> 42);  // all ones where the sum is not below
  less.high &= kMask42;
  const auto choose = [&](uint64_t a, uint64_t b) { return (a & ~takes_less) | (b & takes_less); };
  return {choose(sum.low, less.low), choose(sum.middle, less.middle), choose(sum.high, less.high)};
}

}  // namespace

Poly1305Tag poly1305(const Digest& one_time_key, std::string_view message) {
  const Limbs r = split_limbs(read_word(one_time_key.data()) & 0x0ffffffc0fffffff,
                              read_word(one_time_key.data() + 8) & 0x0ffffffc0ffffffc);
  const auto* at = reinterpret_cast<const uint8_t*>(message.data());
  size_t left = message.size();
  Limbs sum{0, 0, 0};
  // Two blocks at a time: half as many products wait for the one before.
  const Limbs squared = reduce_products(multiply(r, r));
  for (; left >= 32; at += 32, left -= 32) {
    const Products first = multiply(add(sum, read_block(at, 1)), squared);
    const Products second = multiply(read_block(at + 16, 1), r);
    sum = reduce_products(
        {first.low + second.low, first.middle + second.middle, first.high + second.high});
  }
  for (; left >= 16; at += 16, left -= 16)
    sum = reduce_products(multiply(add(sum, read_block(at, 1)), r));
  if (left > 0) {
    std::array<uint8_t, 16> last{};
    std::copy_n(at, left, last.begin());
    last[left] = 1;
    sum = reduce_products(multiply(add(sum, read_block(last.data(), 0)), r));
  }
  sum = reduce(sum);
  const Wide total = (Wide{sum.low} | Wide{sum.middle} << 44 | Wide{sum.high} << 88) +
                     (Wide{read_word(one_time_key.data() + 24)} << 64 |
                      read_word(one_time_key.data() + 16));  // modulo 2^128
  Poly1305Tag tag;
  for (size_t i = 0; i < 16; ++i) tag[i] = static_cast<uint8_t>(total >> (8 * i));
  return tag;
}

}  // namespace weft
