// kernel/cpu/level/gemm_intrinsics.h: the compiler's header of the instruction set.
#pragma once

#if defined(__aarch64__)
#include <arm_neon.h>
#else
#include "kernel/cpu/level/x86_intrinsics.h"
#endif
