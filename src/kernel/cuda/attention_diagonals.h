// kernel/cuda/attention_diagonals.h: the gradient of a relative table out of tiles of dS in
// registers.
//
// It is the sum of dS by bucket of the distance. A warp's tile of 16 queries and 32 keys has 47
// diagonals; of each a thread adds up what it has, since rows r and r + 8 are its own. Lane l adds
// up diagonal l, which ends here, with what the tile before had of it (its diagonal l + 32), and
// keeps its own l + 32 for the next tile. The finished sums of 32 distances
// in a row are added by bucket, which are runs of lanes, to the warp's sums in shared memory.
// A tile with one bucket alone, far from the query, is added up in registers. The warps' sums are
// added last (attention_bias.cu).
#pragma once

#include "kernel/attention_bias.h"
#include "kernel/cuda/attention.h"
#include "kernel/cuda/mma.h"
#include "kernel/cuda/reduce.h"
#include "kernel/gpu/device_limits.h"

namespace weft::cuda {

inline constexpr int kDiagonalKeys = 32;

// Without a table.
struct NoDiagonals {
  struct Sums {};
  static constexpr int kWarpBytes = 0;
  __device__ static Sums begin(char*) { return {}; }
  __device__ void add(Sums&, const float (&)[kDiagonalKeys / 8][4], int) const {}
  __device__ void end_walk(Sums&, int) const {}
  __device__ void write(Sums&, int, int) const {}
};

struct Diagonals {
  RelativeBuckets buckets;
  const uint8_t* line;  // the bucket of distance 0
  float* partials;      // (B, H, parts, buckets); null: no gradient is wanted
  int parts;

  // Of 8 rows of diagonals; spreads what is stored at once over the banks.
  static constexpr int kLd = 57, kRows = 8;
  static constexpr int kWarpBytes =
      static_cast<int>(sizeof(float)) * (kRows * kLd + static_cast<int>(kMostDeviceBuckets));

  struct Sums {
    float* tile;       // shared: (kRows, kLd), by diagonal; those that a row has not are zeros
    float* by_bucket;  // shared
    float carried;     // of diagonal lane + 32 of the tile before
    float far;         // this thread's of tiles with one bucket, far_bucket
    int far_bucket;
  };

  __device__ Sums begin(char* memory) const {
    auto* floats = reinterpret_cast<float*>(memory);
    Sums sums = {floats, floats + kRows * kLd, 0.0f, 0.0f, 0};
    if (partials == nullptr) return sums;
    for (int i = lane_of_warp(); i < kRows * kLd; i += 32) sums.tile[i] = 0.0f;
    for (int i = lane_of_warp(); i < buckets.count; i += 32) sums.by_bucket[i] = 0.0f;
    __syncwarp();
    return sums;
  }

  // ds (16, 32); distance: of its first row and column. Tiles come in the order of keys.
  __device__ __forceinline__ void add(Sums& sums, const float (&ds)[kDiagonalKeys / 8][4],
                                      int distance) const {
    if (partials == nullptr) return;
    const int far = buckets.begins[buckets.side - 1];
    const bool is_before = distance + kDiagonalKeys - 1 <= -far;
    if (is_before || (buckets.bidirectional && distance - 15 >= max(far, 1))) {
      add_far(sums, ds, distance, is_before ? buckets.side - 1 : buckets.count - 1);
      return;
    }
    const int lane = lane_of_warp(), bucket = line[distance - 15 + lane];
    constexpr int kTiles = kDiagonalKeys / 8;
    float* to = sums.tile + lane / 4 * (kLd - 1) + lane % 4 * 2 + 7;
#pragma unroll
    for (int n = 0; n <= kTiles; ++n) {  // rows r of tile n - 1, rows r + 8 of tile n
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const float upper = n == 0 ? 0.0f : ds[n == 0 ? 0 : n - 1][e];
        const float lower = n == kTiles ? 0.0f : ds[n == kTiles ? 0 : n][2 + e];
        to[n * 8 + e] = upper + lower;
      }
    }
    __syncwarp();
    float finished = sums.carried, later = 0.0f;
#pragma unroll
    for (int row = 0; row < kRows; ++row) finished += sums.tile[row * kLd + lane];
    if (lane < 16) {
#pragma unroll
      for (int row = 0; row < kRows; ++row) later += sums.tile[row * kLd + 32 + lane];
    }
    __syncwarp();
    sums.carried = later;
    add_line(sums, finished, bucket);
  }

  // After the last tile of a segment, which ended before `distance` (of the first row).
  __device__ void end_walk(Sums& sums, int distance) const {
    if (partials == nullptr) return;
    add_line(sums, sums.carried, line[distance - 15 + lane_of_warp()]);
    sums.carried = 0.0f;
  }

  __device__ void write(Sums& sums, int row_and_head, int part) const {
    if (partials == nullptr) return;
    flush_far(sums);
    float* to = partials + (int64_t{row_and_head} * parts + part) * buckets.count;
    for (int i = lane_of_warp(); i < buckets.count; i += 32) to[i] = sums.by_bucket[i];
  }

 private:
  // A sum of each lane to that of its bucket. Lanes of one bucket are neighbours.
  __device__ __forceinline__ void add_line(Sums& sums, float value, int bucket) const {
    const int lane = lane_of_warp();
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const float other = __shfl_down_sync(~0u, value, static_cast<unsigned>(step));
      const int its = __shfl_down_sync(~0u, bucket, static_cast<unsigned>(step));
      if (lane + step < 32 && its == bucket) value += other;
    }
    const int before = __shfl_up_sync(~0u, bucket, 1u);
    if (lane == 0 || before != bucket) sums.by_bucket[bucket] += value;
    __syncwarp();
  }
  __device__ void flush_far(Sums& sums) const {
    const float sum = warp_sum(sums.far);
    if (lane_of_warp() == 0) sums.by_bucket[sums.far_bucket] += sum;
    sums.far = 0.0f;
    __syncwarp();
  }
  __device__ __forceinline__ void add_far(Sums& sums, const float (&ds)[kDiagonalKeys / 8][4],
                                          int distance, int bucket) const {
    add_line_of_carried(sums, distance);
    if (bucket != sums.far_bucket) {
      flush_far(sums);
      sums.far_bucket = bucket;
    }
    float sum = 0.0f;
#pragma unroll
    for (int n = 0; n < kDiagonalKeys / 8; ++n) {
      sum += (ds[n][0] + ds[n][1]) + (ds[n][2] + ds[n][3]);
    }
    sums.far += sum;
  }
  __device__ void add_line_of_carried(Sums& sums, int distance) const {
    if (!__any_sync(~0u, sums.carried != 0.0f)) return;
    add_line(sums, sums.carried, line[distance - 15 + lane_of_warp()]);
    sums.carried = 0.0f;
  }
};

// lines: of the bias; partials: memory for the sums of all warps.
inline Diagonals diagonals_of(const AttentionBackwardArgs& args, const float* lines,
                              float* partials) {
  return {args.bias.buckets, bucket_line(args, lines) + args.T - 1 + kBiasReach,
          args.dtable ? partials : nullptr, static_cast<int>(num_table_parts(args))};
}

}  // namespace weft::cuda
