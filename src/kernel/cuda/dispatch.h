// kernel/cuda/dispatch.h: from a dtype in the arguments to the kernel compiled for it.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <type_traits>

#include "kernel/cuda/values.h"
#include "kernel/gpu/device_limits.h"
#include "kernel/kernels.h"

namespace weft {
// Of base/error.h, which nvcc cannot read (fmt).
[[noreturn]] void throw_bug(const char* file, int line, const std::string& message);
}  // namespace weft

namespace weft::cuda {

// Beyond the limits that plans are checked against (kernel/gpu/device_limits.h).
[[noreturn]] inline void refuse(const char* what) { throw_bug(__FILE__, __LINE__, what); }

// fn(float{}), fn(Bf16{}) or fn(Half{}).
template <typename Fn>
void with_type(Dtype dtype, const Fn& fn) {
  if (dtype == Dtype::kBf16) {
    fn(Bf16{});
  } else if (dtype == Dtype::kF16) {
    fn(Half{});
  } else {
    fn(0.0f);
  }
}

// The same for the gradient of values of type T: that of fp16 is fp32, others may be bf16.
template <typename T, typename Fn>
void with_gradient_type(Dtype dtype, const Fn& fn) {
  if constexpr (!std::is_same_v<T, Half>) {
    if (dtype == Dtype::kBf16) return fn(Bf16{});
  }
  if (dtype != Dtype::kF32) refuse("gradients are fp32, or bf16 for fp32 and bf16 values");
  fn(0.0f);
}

// Whether rows of `columns` elements of T at these addresses can be read 16 bytes at a time (null
// addresses are ignored).
template <typename T>
bool is_vectored(int64_t columns, std::initializer_list<const void*> addresses) {
  uintptr_t bits = 0;
  for (const void* at : addresses) bits |= reinterpret_cast<uintptr_t>(at);
  return columns % kPack<T> == 0 && bits % 16 == 0;
}

// For the columns of is_vectored: a multiple of a power of two where all strides are.
inline int64_t strides_of(const HeadsIn& heads) { return heads.row | heads.position | heads.head; }

// fn(integral constant kPack<T>) where vectored, else fn(integral constant 1).
template <typename T, typename Fn>
void with_width(bool vectored, const Fn& fn) {
  if (vectored) {
    fn(std::integral_constant<int, kPack<T>>{});
  } else {
    fn(std::integral_constant<int, 1>{});
  }
}

}  // namespace weft::cuda
