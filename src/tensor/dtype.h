// tensor/dtype.h: element types, their sizes and names, and the two 16-bit floats.
#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <string_view>

namespace weft {

enum class Dtype { kF32, kBf16, kF16, kF64, kI64, kI32, kI16, kI8, kU8, kBool };

int64_t dtype_bytes(Dtype dtype);
const char* dtype_name(Dtype dtype);        // weft's name: "fp32", "bf16", "fp16", "i64" ...
const char* safetensors_name(Dtype dtype);  // "F32", "BF16" ...
std::optional<Dtype> find_safetensors_dtype(std::string_view name);

// bfloat16 as bits. Rounding is to nearest, ties to even; NaN stays NaN.
struct Bf16 {
  uint16_t bits;
};
[[gnu::always_inline]] inline float to_float(Bf16 v) {
  return std::bit_cast<float>(uint32_t{v.bits} << 16);
}
[[gnu::always_inline]] inline float to_float(float v) { return v; }
[[gnu::always_inline]] inline Bf16 to_bf16(float v) {
  const uint32_t u = std::bit_cast<uint32_t>(v);
  if ((u & 0x7fffffffu) > 0x7f800000u) return Bf16{static_cast<uint16_t>((u >> 16) | 0x40u)};
  return Bf16{static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16)};
}

// IEEE half precision as bits. Rounding is to nearest, ties to even; from 65520 on to infinity,
// below 2^-14 to the subnormal grid; NaN stays NaN.
struct Half {
  uint16_t bits;
};
[[gnu::always_inline]] inline float to_float(Half v) {
  const uint32_t sign = (uint32_t{v.bits} & 0x8000u) << 16;
  const uint32_t exponent = (v.bits >> 10) & 0x1fu, mantissa = v.bits & 0x3ffu;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent != 0)
    return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  const float small = static_cast<float>(mantissa) * 0x1.0p-24f;  // zero or subnormal
  return sign ? -small : small;
}
[[gnu::always_inline]] inline Half to_half(float v) {
  const uint32_t u = std::bit_cast<uint32_t>(v);
  const uint32_t sign = (u >> 16) & 0x8000u, magnitude = u & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return Half{static_cast<uint16_t>(sign | 0x7e00u)};
  if (magnitude >= 0x477ff000u) return Half{static_cast<uint16_t>(sign | 0x7c00u)};
  if (magnitude < 0x38800000u) {
    // Adding 0.5 makes the hardware round to the grid of 2^-24, ties to even.
    const float grid = std::bit_cast<float>(magnitude) + 0.5f;
    return Half{static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(grid) - 0x3f000000u))};
  }
  const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return Half{static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13))};
}

// Element i of a buffer of a floating dtype, and the whole buffer, as float.
float load_element(const void* data, Dtype dtype, int64_t i);
void store_element(void* data, Dtype dtype, int64_t i, float v);
void convert_elements(const void* from, Dtype from_dtype, void* to, Dtype to_dtype, int64_t n);

}  // namespace weft
