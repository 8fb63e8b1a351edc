// kernel/cuda/attention_table.h: the gradient of a relative table, summed by the warps of the dq
// kernel.
//
// It is the sum of dS by bucket of the distance. A warp adds up the diagonals of its tiles of dS,
// block of keys after block, into sums of its own, which are added last (attention_bias.cu).
#pragma once

#include "kernel/attention_bias.h"
#include "kernel/cuda/mma.h"
#include "kernel/cuda/values.h"

namespace weft::cuda {

// Without a bias.
struct NoTable {
  template <int kBlock>
  static constexpr int warp_bytes(int) {
    return 0;
  }
  int num_buckets() const { return 0; }
  template <int kBlock>
  __device__ void begin(char*) const {}
  template <int kBlock, typename Value>
  __device__ void add(const Value*, int, int, char*) const {}
  template <int kBlock>
  __device__ void write(int, int, const char*) const {}
};

// memory: shared, of the warp: a tile's diagonals with their buckets, then the sums.
struct TableSums {
  RelativeBuckets buckets;
  float* partials;  // (B, H, parts, buckets); null: no gradient is wanted
  int parts;

  template <int kBlock>
  static constexpr int num_diagonals() {
    return kBlock + 15;
  }
  template <int kBlock>
  static constexpr int sums_at() {
    return (num_diagonals<kBlock>() + 1) * static_cast<int>(sizeof(float) + sizeof(int));
  }
  template <int kBlock>
  static constexpr int warp_bytes(int num_buckets) {
    return num_buckets == 0 ? 0 : sums_at<kBlock>() + num_buckets * static_cast<int>(sizeof(float));
  }
  int num_buckets() const { return partials == nullptr ? 0 : buckets.count; }

  template <int kBlock>
  __device__ void begin(char* memory) const {
    if (partials == nullptr) return;
    for (int i = lane_of_warp(); i < buckets.count; i += 32) sums<kBlock>(memory)[i] = 0.0f;
    __syncwarp();
  }
  // ds (16, kBlock); distance: of its first element.
  template <int kBlock, typename Value>
  __device__ void add(const Value* ds, int ld, int distance, char* memory) const {
    if (partials == nullptr) return;
    constexpr int kDiagonals = num_diagonals<kBlock>();
    auto* line = reinterpret_cast<float*>(memory);
    auto* bucket = reinterpret_cast<int*>(line + kDiagonals + 1);
    for (int i = lane_of_warp(); i < kDiagonals; i += 32) {
      float sum = 0.0f;
      for (int r = max(0, 15 - i); r < min(16, kDiagonals - i); ++r) {
        sum += load_one(ds + r * ld + i - 15 + r);
      }
      line[i] = sum;
      bucket[i] = relative_bucket(buckets, distance + i - 15);
    }
    __syncwarp();
    for (int own = lane_of_warp(); own < buckets.count; own += 32) {
      float sum = sums<kBlock>(memory)[own];
      for (int i = 0; i < kDiagonals; ++i) {
        if (bucket[i] == own) sum += line[i];
      }
      sums<kBlock>(memory)[own] = sum;
    }
    __syncwarp();
  }
  template <int kBlock>
  __device__ void write(int row_and_head, int part, char* memory) const {
    if (partials == nullptr) return;
    float* to = partials + (int64_t{row_and_head} * parts + part) * buckets.count;
    for (int i = lane_of_warp(); i < buckets.count; i += 32) to[i] = sums<kBlock>(memory)[i];
  }

 private:
  template <int kBlock>
  __device__ static float* sums(char* memory) {
    return reinterpret_cast<float*>(memory + sums_at<kBlock>());
  }
};

}  // namespace weft::cuda
