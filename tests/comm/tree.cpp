// tests/comm/tree.cpp: inputs as pure functions of their position, so that any rank knows all of
// them.
#include "tests/comm/tree.h"

#include <fmt/core.h>

#include <array>
#include <bit>
#include <cstring>

namespace weft::testing {
namespace {

template <typename T>
uint64_t bits_of(T value) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  return bits;
}

template <typename T>
T value_of(uint64_t bits) {
  T value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

template <typename T>
T join(Reduce op, T a, T b) {
  if (op == Reduce::kMax) return a < b ? b : a;
  return a + b;
}

}  // namespace

uint64_t input_bits(Dtype dtype, uint64_t seed, int rank, int64_t i) {
  // A hash of the position (splitmix64), which is good enough here.
  uint64_t x = seed * 0x9e3779b97f4a7c15 + static_cast<uint64_t>(rank) * 0xd1b54a32d192ed03 +
               static_cast<uint64_t>(i) * 0x8cb92ba72f3d8dd7;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  x ^= x >> 31;
  // Magnitudes over many binades, so that another order of adding yields other bits.
  const auto scale = std::bit_cast<double>((1023 - 12 + (x & 15)) << 52);
  const double value = (static_cast<double>(x >> 32) / 0x1p31 - 1) * scale;
  switch (dtype) {
    case Dtype::kF32:
      return bits_of(static_cast<float>(value));
    case Dtype::kBf16:
      return bits_of(to_bf16(static_cast<float>(value)));
    case Dtype::kF16:
      return bits_of(to_half(static_cast<float>(value)));
    case Dtype::kF64:
      return bits_of(value * (1 + static_cast<double>(x & 0xffffff) * 0x1p-50));
    default:
      return x;
  }
}

uint64_t reduced_bits(Dtype dtype, Reduce op, uint64_t seed, int n, int64_t i) {
  const auto over_ranks = [&]<typename T>(const auto& load) {
    std::array<T, 256> values;
    for (int r = 0; r < n; ++r)
      values[static_cast<size_t>(r)] = load(input_bits(dtype, seed, r, i));
    return join_levels(values.data(), n, [op](T a, T b) { return join(op, a, b); });
  };
  switch (dtype) {
    case Dtype::kF32:
      return bits_of(over_ranks.operator()<float>(value_of<float>));
    case Dtype::kBf16:
      return bits_of(to_bf16(over_ranks.operator()<float>(
          [](uint64_t bits) { return to_float(value_of<Bf16>(bits)); })));
    case Dtype::kF16:
      return bits_of(to_half(over_ranks.operator()<float>(
          [](uint64_t bits) { return to_float(value_of<Half>(bits)); })));
    case Dtype::kF64:
      return bits_of(over_ranks.operator()<double>(value_of<double>));
    default:
      // Summed as unsigned numbers, which wrap; the maximum is signed.
      if (op == Reduce::kMax) return bits_of(over_ranks.operator()<int64_t>(value_of<int64_t>));
      return over_ranks.operator()<uint64_t>(value_of<uint64_t>);
  }
}

void fill(char* data, Dtype dtype, uint64_t seed, int rank, int64_t first, int64_t count) {
  const auto size = static_cast<size_t>(dtype_bytes(dtype));
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t bits = input_bits(dtype, seed, rank, first + i);
    std::memcpy(data + static_cast<size_t>(i) * size, &bits, size);
  }
}

std::string compare_reduced(const char* data, Dtype dtype, Reduce op, uint64_t seed, int n,
                            int64_t first, int64_t count) {
  const auto size = static_cast<size_t>(dtype_bytes(dtype));
  for (int64_t i = 0; i < count; ++i) {
    uint64_t got = 0;
    std::memcpy(&got, data + static_cast<size_t>(i) * size, size);
    const uint64_t wanted = reduced_bits(dtype, op, seed, n, first + i);
    if (got != wanted) {
      return fmt::format("{} element {} of {} over {} ranks: {:x}, wanted {:x}", dtype_name(dtype),
                         i, count, n, got, wanted);
    }
  }
  return "";
}

}  // namespace weft::testing
