// kernel/cpu/level/gemm_intrinsics.h: the compiler's header of the instruction set.
#pragma once

#if defined(__aarch64__)
#include <arm_neon.h>
#else
// g++ 12 warns about its own "undefined" vectors wherever they are inlined (GCC bug 105593).
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop
#endif
