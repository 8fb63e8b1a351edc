// tests/tensor/dtype_test.cpp: names, sizes, and round trips of every 16-bit float.
#include "tensor/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "base/error.h"

namespace weft {
namespace {

constexpr Dtype kAll[] = {Dtype::kF32, Dtype::kBf16, Dtype::kF16, Dtype::kF64, Dtype::kI64,
                          Dtype::kI32, Dtype::kI16,  Dtype::kI8,  Dtype::kU8,  Dtype::kBool};

TEST(Dtypes, NamesRoundTrip) {
  for (const Dtype dtype : kAll) {
    EXPECT_EQ(find_safetensors_dtype(safetensors_name(dtype)), dtype);
    EXPECT_GE(dtype_bytes(dtype), 1);
  }
  EXPECT_EQ(find_safetensors_dtype("F8_E4M3"), std::nullopt);
  EXPECT_EQ(find_safetensors_dtype("f32"), std::nullopt);
  EXPECT_STREQ(dtype_name(Dtype::kBf16), "bf16");
  EXPECT_EQ(dtype_bytes(Dtype::kBf16), 2);
  EXPECT_EQ(dtype_bytes(Dtype::kF64), 8);
}

TEST(Dtypes, EveryHalfRoundTrips) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float v = to_float(Half{static_cast<uint16_t>(bits)});
    if (std::isnan(v)) {
      EXPECT_TRUE(std::isnan(to_float(to_half(v))));
    } else {
      ASSERT_EQ(to_half(v).bits, bits);
    }
  }
}

TEST(Dtypes, EveryBf16RoundTrips) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float v = to_float(Bf16{static_cast<uint16_t>(bits)});
    if (std::isnan(v)) {
      EXPECT_TRUE(std::isnan(to_float(to_bf16(v))));
    } else {
      ASSERT_EQ(to_bf16(v).bits, bits);
    }
  }
}

// Neighbours a < b of the 16-bit grid: below the middle rounds to a, above to b, the middle to the
// one whose last bit is 0.
TEST(Dtypes, RoundToNearestTiesToEven) {
  for (uint32_t bits = 0; bits < 0x7bff; ++bits) {
    const float a = to_float(Half{static_cast<uint16_t>(bits)});
    const float b = to_float(Half{static_cast<uint16_t>(bits + 1)});
    const float middle = a + (b - a) / 2;
    ASSERT_EQ(to_half(middle).bits, bits + (bits & 1));
    ASSERT_EQ(to_half(std::nextafter(middle, a)).bits, bits);
    ASSERT_EQ(to_half(std::nextafter(middle, b)).bits, bits + 1);
    ASSERT_EQ(to_half(-middle).bits, (bits + (bits & 1)) | 0x8000);
  }
  for (uint32_t bits = 0; bits < 0x7f7f; ++bits) {
    const float a = to_float(Bf16{static_cast<uint16_t>(bits)});
    const float b = to_float(Bf16{static_cast<uint16_t>(bits + 1)});
    const float middle = a + (b - a) / 2;
    ASSERT_EQ(to_bf16(middle).bits, bits + (bits & 1));
    ASSERT_EQ(to_bf16(std::nextafter(middle, a)).bits, bits);
    ASSERT_EQ(to_bf16(std::nextafter(middle, b)).bits, bits + 1);
  }
}

// The compiler's own half type, where it has one.
#if defined(__aarch64__)
using CompilerHalf = __fp16;
#elif defined(__FLT16_MAX__)
using CompilerHalf = _Float16;
#endif
#if defined(__aarch64__) || defined(__FLT16_MAX__)
uint16_t compiler_bits(float v) { return std::bit_cast<uint16_t>(static_cast<CompilerHalf>(v)); }

TEST(Dtypes, HalvesMatchTheCompilers) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const Half half{static_cast<uint16_t>(bits)};
    const auto want = static_cast<float>(std::bit_cast<CompilerHalf>(half.bits));
    if (std::isnan(want)) {
      ASSERT_TRUE(std::isnan(to_float(half)));
    } else {
      ASSERT_EQ(std::bit_cast<uint32_t>(to_float(half)), std::bit_cast<uint32_t>(want)) << bits;
    }
  }
  // Every float whose low 12 bits are 0, 1, half of what is cut off, or next to it.
  for (uint32_t high = 0; high < 1u << 20; ++high) {
    for (const uint32_t low : {0x000u, 0x001u, 0x7ffu, 0x800u, 0x801u, 0xfffu}) {
      const float v = std::bit_cast<float>(high << 12 | low);
      if (std::isnan(v)) {
        ASSERT_TRUE(std::isnan(to_float(to_half(v))));
      } else {
        ASSERT_EQ(to_half(v).bits, compiler_bits(v)) << v;
      }
    }
  }
}
#endif

TEST(Dtypes, OverflowIsInfinity) {
  EXPECT_EQ(to_half(65519.0f).bits, 0x7bff);
  EXPECT_EQ(to_half(65520.0f).bits, 0x7c00);
  EXPECT_EQ(to_half(-1e30f).bits, 0xfc00);
  EXPECT_EQ(to_bf16(std::numeric_limits<float>::max()).bits, 0x7f80);
}

TEST(Dtypes, ElementsAndWholeBuffers) {
  const std::vector<float> from = {0.0f, -1.5f, 3.140625f, 1e-3f};
  for (const Dtype dtype : {Dtype::kF32, Dtype::kBf16, Dtype::kF16, Dtype::kF64}) {
    std::vector<char> there(from.size() * 8);
    std::vector<float> back(from.size());
    const auto n = static_cast<int64_t>(from.size());
    convert_elements(from.data(), Dtype::kF32, there.data(), dtype, n);
    convert_elements(there.data(), dtype, back.data(), Dtype::kF32, n);
    for (int64_t i = 0; i < n; ++i) {
      EXPECT_EQ(load_element(there.data(), dtype, i), back[static_cast<size_t>(i)]);
      EXPECT_NEAR(back[static_cast<size_t>(i)], from[static_cast<size_t>(i)], 1e-5);
    }
    store_element(there.data(), dtype, 1, 2.0f);
    EXPECT_EQ(load_element(there.data(), dtype, 1), 2.0f);
    EXPECT_EQ(load_element(there.data(), dtype, 2), back[2]);
  }
  int64_t whole = 1;
  EXPECT_THROW(static_cast<void>(load_element(&whole, Dtype::kI64, 0)), BugError);
  EXPECT_THROW(store_element(&whole, Dtype::kI64, 0, 1.0f), BugError);
}

}  // namespace
}  // namespace weft
