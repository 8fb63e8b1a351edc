// kernel/cpu/level/x86_intrinsics.h: <immintrin.h> without g++ 12's false warnings.
//
// Its AVX-512 functions start from "undefined" vectors that the compiler then warns of (GCC bug
// 105593). A warning is attributed to its own line, so it is enough to silence the header.
#pragma once

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#ifndef __clang__  // which does not know the name
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#pragma GCC diagnostic pop
