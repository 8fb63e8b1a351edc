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

float load_element(const void* data, Dtype dtype, int64_t i) {
  switch (dtype) {
    case Dtype::kF32:
      return read<float>(data, i);
    case Dtype::kBf16:
      return to_float(read<Bf16>(data, i));
    case Dtype::kF16:
      return to_float(read<Half>(data, i));
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
      return write(data, i, to_half(v));
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
  // The conversions that loading a model needs, as loops that the compiler vectorizes.
  if (from_dtype == Dtype::kF32 && to_dtype == Dtype::kBf16) {
    return convert_each<float>(from, to, n, [](float v) { return to_bf16(v); });
  }
  if (from_dtype == Dtype::kBf16 && to_dtype == Dtype::kF32) {
    return convert_each<Bf16>(from, to, n, [](Bf16 v) { return to_float(v); });
  }
  if (from_dtype == Dtype::kF32 && to_dtype == Dtype::kF16) {
    return convert_each<float>(from, to, n, [](float v) { return to_half(v); });
  }
  if (from_dtype == Dtype::kF16 && to_dtype == Dtype::kF32) {
    return convert_each<Half>(from, to, n, [](Half v) { return to_float(v); });
  }
  for (int64_t i = 0; i < n; ++i) store_element(to, to_dtype, i, load_element(from, from_dtype, i));
}

}  // namespace weft
