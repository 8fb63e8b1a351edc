// kernel/cuda/values.h: elements of fp32, bf16 and fp16 as vectors of up to 16 bytes; fp32 in
// registers.
//
// A kernel is a template over the type T and over the number of elements that a thread processes at
// once (kWidth): those of 16 bytes where pointers and rows allow it, else one.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <initializer_list>

#include "tensor/dtype.h"

namespace weft::cuda {

template <typename T>
inline constexpr int kPack = static_cast<int>(16 / sizeof(T));  // elements of 16 bytes

// kBytes of raw memory, moved by one instruction.
template <int kBytes>
struct Words;
template <>
struct Words<2> {
  using Type = uint16_t;
};
template <>
struct Words<4> {
  using Type = uint32_t;
};
template <>
struct Words<8> {
  using Type = uint2;
};
template <>
struct Words<16> {
  using Type = uint4;
};

// kWidth elements of T, in storage format: values held for later use few registers.
template <typename T, int kWidth>
struct Raw {
  typename Words<static_cast<int>(sizeof(T)) * kWidth>::Type words;
};

// Nearest, ties to even.
__device__ __forceinline__ uint32_t bits_of_bf16(float v) {
  const uint32_t u = __float_as_uint(v);
  if ((u & 0x7fffffffu) > 0x7f800000u) return (u >> 16) | 0x40u;
  return (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
}
__device__ __forceinline__ uint32_t two_of(Bf16, float low, float high) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  uint32_t bits;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
  return bits;
#else
  return bits_of_bf16(low) | bits_of_bf16(high) << 16;
#endif
}
__device__ __forceinline__ void unpack_two(Bf16, uint32_t bits, float& low, float& high) {
  low = __uint_as_float(bits << 16);
  high = __uint_as_float(bits & 0xffff0000u);
}

// The hardware's conversions: nearest, ties to even, too large becomes infinite.
__device__ __forceinline__ uint32_t two_of(Half, float low, float high) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  uint32_t bits;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
  return bits;
#elif defined(__CUDA_ARCH__)
  uint16_t first, second;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(first) : "f"(low));
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(second) : "f"(high));
  return first | static_cast<uint32_t>(second) << 16;
#else
  return to_half(low).bits | static_cast<uint32_t>(to_half(high).bits) << 16;
#endif
}
__device__ __forceinline__ float from_half(uint16_t bits) {
#if defined(__CUDA_ARCH__)
  float v;
  asm("cvt.f32.f16 %0, %1;" : "=f"(v) : "h"(bits));
  return v;
#else
  return to_float(Half{bits});
#endif
}
__device__ __forceinline__ void unpack_two(Half, uint32_t bits, float& low, float& high) {
  low = from_half(static_cast<uint16_t>(bits));
  high = from_half(static_cast<uint16_t>(bits >> 16));
}

// v rounded to its storage type.
__device__ __forceinline__ float rounded(Bf16, float v) {
  return __uint_as_float(two_of(Bf16{}, 0.0f, v) & 0xffff0000u);
}
__device__ __forceinline__ float rounded(Half, float v) {
  return from_half(static_cast<uint16_t>(two_of(Half{}, v, 0.0f)));
}
__device__ __forceinline__ float rounded(float, float v) { return v; }

template <int kWidth, typename T>
__device__ __forceinline__ Raw<T, kWidth> load_raw(const T* from) {
  return *reinterpret_cast<const Raw<T, kWidth>*>(from);
}
template <int kWidth, typename T>
__device__ __forceinline__ void store_raw(T* to, Raw<T, kWidth> raw) {
  *reinterpret_cast<Raw<T, kWidth>*>(to) = raw;
}

__device__ __forceinline__ void unpack(Raw<float, 4> raw, float (&v)[4]) {
  v[0] = __uint_as_float(raw.words.x);
  v[1] = __uint_as_float(raw.words.y);
  v[2] = __uint_as_float(raw.words.z);
  v[3] = __uint_as_float(raw.words.w);
}
__device__ __forceinline__ void unpack(Raw<float, 1> raw, float (&v)[1]) {
  v[0] = __uint_as_float(raw.words);
}
// Of the two types of 16 bits.
template <typename T>
__device__ __forceinline__ void unpack(Raw<T, 8> raw, float (&v)[8]) {
  unpack_two(T{}, raw.words.x, v[0], v[1]);
  unpack_two(T{}, raw.words.y, v[2], v[3]);
  unpack_two(T{}, raw.words.z, v[4], v[5]);
  unpack_two(T{}, raw.words.w, v[6], v[7]);
}
template <typename T>
__device__ __forceinline__ void unpack(Raw<T, 4> raw, float (&v)[4]) {
  unpack_two(T{}, raw.words.x, v[0], v[1]);
  unpack_two(T{}, raw.words.y, v[2], v[3]);
}
template <typename T>
__device__ __forceinline__ void unpack(Raw<T, 1> raw, float (&v)[1]) {
  float nothing;
  unpack_two(T{}, raw.words, v[0], nothing);
}

__device__ __forceinline__ void pack(const float (&v)[4], Raw<float, 4>& raw) {
  raw.words = make_uint4(__float_as_uint(v[0]), __float_as_uint(v[1]), __float_as_uint(v[2]),
                         __float_as_uint(v[3]));
}
__device__ __forceinline__ void pack(const float (&v)[1], Raw<float, 1>& raw) {
  raw.words = __float_as_uint(v[0]);
}
template <typename T>
__device__ __forceinline__ void pack(const float (&v)[8], Raw<T, 8>& raw) {
  raw.words = make_uint4(two_of(T{}, v[0], v[1]), two_of(T{}, v[2], v[3]), two_of(T{}, v[4], v[5]),
                         two_of(T{}, v[6], v[7]));
}
template <typename T>
__device__ __forceinline__ void pack(const float (&v)[4], Raw<T, 4>& raw) {
  raw.words = make_uint2(two_of(T{}, v[0], v[1]), two_of(T{}, v[2], v[3]));
}
template <typename T>
__device__ __forceinline__ void pack(const float (&v)[1], Raw<T, 1>& raw) {
  raw.words = static_cast<uint16_t>(two_of(T{}, v[0], 0.0f));
}

template <int kWidth, typename T>
__device__ __forceinline__ void load(const T* from, float (&v)[kWidth]) {
  unpack(load_raw<kWidth>(from), v);
}
template <int kWidth, typename T>
__device__ __forceinline__ void store(T* to, const float (&v)[kWidth]) {
  Raw<T, kWidth> raw;
  pack(v, raw);
  store_raw<kWidth>(to, raw);
}
// fp32 next to eight 16-bit elements: two vectors.
__device__ __forceinline__ void load(const float* from, float (&v)[8]) {
  float low[4], high[4];
  load(from, low);
  load(from + 4, high);
#pragma unroll
  for (int k = 0; k < 4; ++k) v[k] = low[k], v[k + 4] = high[k];
}
__device__ __forceinline__ void store(float* to, const float (&v)[8]) {
  store(to, {v[0], v[1], v[2], v[3]});
  store(to + 4, {v[4], v[5], v[6], v[7]});
}
template <typename T>
__device__ __forceinline__ float load_one(const T* from) {
  float v[1];
  load<1>(from, v);
  return v[0];
}
template <typename T>
__device__ __forceinline__ void store_one(T* to, float value) {
  const float v[1] = {value};
  store<1>(to, v);
}

// exp, 1 / v and sqrt as precise as results of type T need: bf16 keeps 8 bits, fp16 11, and the
// fast forms lose the last two or three of 24.
__device__ __forceinline__ float exp_for(float, float v) { return expf(v); }
template <typename T>
__device__ __forceinline__ float exp_for(T, float v) {
  return __expf(v);
}
__device__ __forceinline__ float divide_for(float, float a, float b) { return a / b; }
template <typename T>
__device__ __forceinline__ float divide_for(T, float a, float b) {
  return __fdividef(a, b);
}
__device__ __forceinline__ float sqrt_for(float, float v) { return sqrtf(v); }
template <typename T>
__device__ __forceinline__ float sqrt_for(T, float v) {
#if defined(__CUDA_ARCH__)
  float root;
  asm("sqrt.approx.f32 %0, %1;" : "=f"(root) : "f"(v));
  return root;
#else
  return sqrtf(v);
#endif
}

}  // namespace weft::cuda
