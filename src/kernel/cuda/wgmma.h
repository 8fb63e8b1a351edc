// kernel/cuda/wgmma.h: the tensor cores' product of four warps together, of GPUs of compute
// capability 9.0.
//
// c (64, N) += a (64, 16) · b (PTX ISA, wgmma; only in machine code for 90a). Rows 16 w .. 16 w +
// 15 of a and c are warp w's, in the layout of mma.h; a is in registers or in shared memory, b in
// shared memory. Products run on their own from begin_products on; end_products waits for them.
#pragma once

#include "kernel/cuda/mma.h"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define WEFT_HAS_WGMMA 1
#else
#define WEFT_HAS_WGMMA 0
#endif

namespace weft::cuda {

#if WEFT_HAS_WGMMA

// What was copied or stored to shared memory before the next barrier, products after it may read.
__device__ __forceinline__ void show_to_products() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
__device__ __forceinline__ void begin_products() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void end_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}
// Keeps uses of a result behind end_products, and what made it before begin_products.
template <int kTiles>
__device__ __forceinline__ void pin(float (&c)[kTiles][4]) {
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
    asm volatile("" : "+f"(c[n][0]), "+f"(c[n][1]), "+f"(c[n][2]), "+f"(c[n][3])::"memory");
  }
}

// A matrix in shared memory: rows of 128 bytes, in eights of 1024 bytes, chunk c of row r at place
// c ^ r % 8.
__device__ __forceinline__ uint64_t matrix_at(uint32_t address) {
  constexpr uint64_t kMixed128 = uint64_t{1} << 62, kEight = uint64_t{1024 >> 4} << 32;
  return kMixed128 | kEight | uint64_t{1} << 16 | (address & 0x3ffff) >> 4;
}

#define WEFT_FOUR(c, n) "+f"((c)[n][0]), "+f"((c)[n][1]), "+f"((c)[n][2]), "+f"((c)[n][3])
#define WEFT_16_PLACES "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define WEFT_32_PLACES                                                      \
  WEFT_16_PLACES                                                            \
  ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29," \
  " %30, %31"
#define WEFT_WGMMA(columns, type)                                                                 \
  "{.reg .pred p; setp.ne.b32 p, 1, 0; wgmma.mma_async.sync.aligned.m64n" columns "k16.f32." type \
  "." type

// c (64, 32) or (64, 64) += a (64, 16) · b; b: rows are columns of c, or, transposed, those of a.
#define WEFT_WGMMA_OF(Value, type)                                                                 \
  template <bool kTransposed>                                                                      \
  __device__ __forceinline__ void wgmma(Value, float(&c)[4][4], const uint32_t(&a)[4],             \
                                        uint64_t b) {                                              \
    asm volatile(WEFT_WGMMA("32", type) " {" WEFT_16_PLACES                                        \
                                        "}, {%16, %17, %18, %19}, %20, p, 1, 1, %21;}"             \
                 : WEFT_FOUR(c, 0), WEFT_FOUR(c, 1), WEFT_FOUR(c, 2), WEFT_FOUR(c, 3)              \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(kTransposed));          \
  }                                                                                                \
  template <bool kTransposed>                                                                      \
  __device__ __forceinline__ void wgmma(Value, float(&c)[8][4], const uint32_t(&a)[4],             \
                                        uint64_t b) {                                              \
    asm volatile(WEFT_WGMMA("64", type) " {" WEFT_32_PLACES                                        \
                                        "}, {%32, %33, %34, %35}, %36, p, 1, 1, %37;}"             \
                 : WEFT_FOUR(c, 0), WEFT_FOUR(c, 1), WEFT_FOUR(c, 2), WEFT_FOUR(c, 3),             \
                   WEFT_FOUR(c, 4), WEFT_FOUR(c, 5), WEFT_FOUR(c, 6), WEFT_FOUR(c, 7)              \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(kTransposed));          \
  }                                                                                                \
  /* a in shared memory, too */                                                                    \
  __device__ __forceinline__ void wgmma_of_tiles(Value, float(&c)[4][4], uint64_t a, uint64_t b) { \
    asm volatile(WEFT_WGMMA("32", type) " {" WEFT_16_PLACES "}, %16, %17, p, 1, 1, 0, 0;}"         \
                 : WEFT_FOUR(c, 0), WEFT_FOUR(c, 1), WEFT_FOUR(c, 2), WEFT_FOUR(c, 3)              \
                 : "l"(a), "l"(b));                                                                \
  }
WEFT_WGMMA_OF(Bf16, "bf16")
WEFT_WGMMA_OF(Half, "f16")
#undef WEFT_WGMMA_OF
#undef WEFT_WGMMA
#undef WEFT_32_PLACES
#undef WEFT_16_PLACES
#undef WEFT_FOUR

#else

__device__ __forceinline__ void show_to_products() {}
__device__ __forceinline__ void begin_products() {}
__device__ __forceinline__ void end_products() {}
template <int kTiles>
__device__ __forceinline__ void pin(float (&)[kTiles][4]) {}

#endif

}  // namespace weft::cuda
