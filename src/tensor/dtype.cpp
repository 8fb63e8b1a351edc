// tensor/dtype.cpp: one table of the types; conversions between the floating ones.
#include "tensor/dtype.h"

#include <cstring>

#include "base/error.h"

namespace weft {
namespace {

struct Entry {
  Dtype dtype;
  int64_t bytes;
  const char* name;
  const char* safetensors;
};
constexpr Entry kEntries[] = {
    {Dtype::kF32, 4, "fp32", "F32"}, {Dtype::kBf16, 2, "bf16", "BF16"},
    {Dtype::kF16, 2, "fp16", "F16"}, {Dtype::kF64, 8, "fp64", "F64"},
    {Dtype::kI64, 8, "i64", "I64"},  {Dtype::kI32, 4, "i32", "I32"},
    {Dtype::kI16, 2, "i16", "I16"},  {Dtype::kI8, 1, "i8", "I8"},
    {Dtype::kU8, 1, "u8", "U8"},     {Dtype::kBool, 1, "bool", "BOOL"},
};

const Entry& entry(Dtype dtype) { return kEntries[static_cast<size_t>(dtype)]; }

template <typename T>
T read(const void* data, int64_t i) {
  T v;
  std::memcpy(&v, static_cast<const char*>(data) + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return v;
}

template <typename T>
void write(void* data, int64_t i, T v) {
  std::memcpy(static_cast<char*>(data) + i * static_cast<int64_t>(sizeof(T)), &v, sizeof(T));
}

}  // namespace

int64_t dtype_bytes(Dtype dtype) { return entry(dtype).bytes; }
const char* dtype_name(Dtype dtype) { return entry(dtype).name; }
const char* safetensors_name(Dtype dtype) { return entry(dtype).safetensors; }

std::optional<Dtype> find_safetensors_dtype(std::string_view name) {
  for (const Entry& e : kEntries) {
    if (name == e.safetensors) return e.dtype;
  }
  return std::nullopt;
}

float half_to_float(uint16_t bits) {
  const uint32_t sign = (uint32_t{bits} & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1fu;
  const uint32_t mantissa = bits & 0x3ffu;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent != 0)
    return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  const float small = static_cast<float>(mantissa) * 0x1.0p-24f;  // zero or subnormal
  return sign ? -small : small;
}

uint16_t float_to_half(float v) {
  const uint32_t u = std::bit_cast<uint32_t>(v);
  const uint16_t sign = static_cast<uint16_t>((u >> 16) & 0x8000u);
  const uint32_t magnitude = u & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // rounds to infinity
  if (magnitude < 0x38800000u) {                                               // below 2^-14
    // Adding 0.5 makes the hardware round to the subnormal grid of 2^-24, ties to even.
    const float grid = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(grid) - 0x3f000000u));
  }
  const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}

float load_element(const void* data, Dtype dtype, int64_t i) {
  switch (dtype) {
    case Dtype::kF32:
      return read<float>(data, i);
    case Dtype::kBf16:
      return to_float(read<Bf16>(data, i));
    case Dtype::kF16:
      return half_to_float(read<uint16_t>(data, i));
    case Dtype::kF64:
      return static_cast<float>(read<double>(data, i));
    default:
      throw BugError(fmt::format("load_element: {} is not a floating type", dtype_name(dtype)));
  }
}

void store_element(void* data, Dtype dtype, int64_t i, float v) {
  switch (dtype) {
    case Dtype::kF32:
      return write(data, i, v);
    case Dtype::kBf16:
      return write(data, i, to_bf16(v));
    case Dtype::kF16:
      return write(data, i, float_to_half(v));
    case Dtype::kF64:
      return write(data, i, double{v});
    default:
      throw BugError(fmt::format("store_element: {} is not a floating type", dtype_name(dtype)));
  }
}

namespace {

template <typename From, typename Fn>
void convert_each(const void* from, void* to, int64_t n, const Fn& fn) {
  for (int64_t i = 0; i < n; ++i) write(to, i, fn(read<From>(from, i)));
}

}  // namespace

void convert_elements(const void* from, Dtype from_dtype, void* to, Dtype to_dtype, int64_t n) {
  if (from_dtype == to_dtype) {
    std::memcpy(to, from, static_cast<size_t>(n * dtype_bytes(from_dtype)));
    return;
  }
  // The two that loading a model is about, as loops that the compiler makes vectors of.
  if (from_dtype == Dtype::kF32 && to_dtype == Dtype::kBf16) {
    return convert_each<float>(from, to, n, [](float v) { return to_bf16(v); });
  }
  if (from_dtype == Dtype::kBf16 && to_dtype == Dtype::kF32) {
    return convert_each<Bf16>(from, to, n, [](Bf16 v) { return to_float(v); });
  }
  for (int64_t i = 0; i < n; ++i) store_element(to, to_dtype, i, load_element(from, from_dtype, i));
}

}  // namespace weft
