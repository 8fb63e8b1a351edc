// kernel/cpu/level/gemm_tile_amx.h: the bf16 tile of AMX, 32 rows by 32 columns.
//
// Four tile registers of 16 by 16 fp32 hold the sums, two hold A (16 rows by 32 k) and two B (16
// pairs of k by 16 columns): four multiplications to four loads. A panel of B (32 KiB) stays in
// the L1 cache; both factors from L2 would be more than it can deliver.
//
// The kernel must grant a process the use of tiles once, and each thread describes its tiles once.
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

#include "kernel/cpu/level/gemm_intrinsics.h"
#include "tensor/dtype.h"

namespace weft::WEFT_LEVEL {
namespace {

struct AmxTile {
  using Packed = Bf16;
  static constexpr int kMr = 32, kNr = 32, kGroupA = 32, kGroupB = 2, kStep = 32;
  static constexpr int64_t kMaxK = 512;

  static void prepare() {
    static thread_local bool prepared = false;
    if (prepared) return;
    prepared = true;
    constexpr long kRequestPermission = 0x1023, kTileData = 18;  // arch_prctl(ARCH_REQ_XCOMP_PERM)
    syscall(SYS_arch_prctl, kRequestPermission, kTileData);
    struct alignas(64) {
      uint8_t palette = 1, start_row = 0, reserved[14] = {};
      uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    } config;
    _tile_loadconfig(&config);
  }

  static void multiply(int64_t k_count, const Bf16* a, const Bf16* b, float* tile, bool resume) {
    constexpr int kTileStride = kNr * 4, kStrideA = 64, kStrideB = kNr * 4;  // bytes
    // g++ 12 does not know that these instructions read and write memory.
    asm volatile("" ::: "memory");
    if (resume) {
      _tile_loadd(0, tile, kTileStride);
      _tile_loadd(1, tile + 16, kTileStride);
      _tile_loadd(2, tile + 16 * kNr, kTileStride);
      _tile_loadd(3, tile + 16 * kNr + 16, kTileStride);
    } else {
      _tile_zero(0);
      _tile_zero(1);
      _tile_zero(2);
      _tile_zero(3);
    }
    for (int64_t k = 0; k < k_count; k += kStep, a += kMr * kStep, b += kNr * kStep) {
      _tile_loadd(4, a, kStrideA);
      _tile_loadd(6, b, kStrideB);
      _tile_loadd(7, b + 32, kStrideB);
      _tile_dpbf16ps(0, 4, 6);
      _tile_loadd(5, a + 16 * kStep, kStrideA);
      _tile_dpbf16ps(1, 4, 7);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, tile, kTileStride);
    _tile_stored(1, tile + 16, kTileStride);
    _tile_stored(2, tile + 16 * kNr, kTileStride);
    _tile_stored(3, tile + 16 * kNr + 16, kTileStride);
    asm volatile("" ::: "memory");
  }
};

}  // namespace
}  // namespace weft::WEFT_LEVEL
