// kernel/cuda/attention_kept.h: dS in 16 bits, kept by the kernel of dk and dv for that of dq.
//
// Tiles of 16 queries and 16 keys, those of a line of queries one after the other. A tile is four
// matrices of 8 x 8: (queries 0 .. 7, keys 0 .. 7), (8 .., 0 ..), (0 .., 8 ..), (8 .., 8 ..), each
// with a row of 16 bytes per key: so a warp whose rows are keys writes 128 bytes of each at once,
// and the tile read transposed is a fragment whose rows are queries (mma.h).
//
// Heads are processed in pieces of whole groups, one after the other, so that kMostKeptBytes
// suffice; no sum depends on the cut. Tiles that nothing sees are neither written nor read. Packed
// rows, whose tiles begin where segments do, and groups too large for kMostKeptBytes keep nothing:
// dq computes dS again (attention_tensor_dq.cu), with the same bits.
#pragma once

#include "kernel/cuda/attention_tiles.h"
#include "kernel/kernels.h"

namespace weft::cuda {

inline constexpr int64_t kMostKeptBytes = int64_t{256} << 20;

struct Kept {
  static constexpr int kTile = 256;  // elements

  uint16_t* data;      // of the piece's first head; null: nothing is kept
  int lines, columns;  // of 16 queries, of 16 keys

  __device__ __forceinline__ uint16_t* tile(int head, int line, int column) const {
    return data + ((int64_t{head} * lines + line) * columns + column) * kTile;
  }
};

// Groups of heads, counted over all rows of the batch: first .. first + count - 1.
struct Groups {
  int first, count;
};

// Whether a query of the line sees a key of the column, where rows are one segment.
__device__ __forceinline__ bool sees(const Heads& heads, const Side& queries, const Side& keys,
                                     int line, int column) {
  const int query = line * 16, key = column * 16;
  return query < queries.length && key < keys.length && (!heads.causal || key <= query + 15) &&
         (heads.window == 0 || key + 15 > query - heads.window);
}

// Fragments (16 keys, 16 kTiles queries) of dS into kTiles lines.
template <int kTiles>
__device__ __forceinline__ void keep_fragments(const Kept& kept, int head, int line, int column,
                                               const uint32_t (&fragments)[kTiles][4]) {
  auto* to = reinterpret_cast<uint32_t*>(kept.tile(head, line, column)) + threadIdx.x % 32;
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
    uint32_t* tile = to + n * kept.columns * (Kept::kTile / 2);
    tile[0] = fragments[n][0];
    tile[64] = fragments[n][1];
    tile[32] = fragments[n][2];
    tile[96] = fragments[n][3];
  }
}

// attention_tensor_kept.cu. Bytes of the workspace: as many with these lengths as with shorter
// ones, or more.
size_t kept_bytes(const AttentionBackwardArgs&);
// Groups of a piece; 0: nothing is kept.
int64_t kept_groups(const AttentionBackwardArgs&);
Kept kept_at(const AttentionBackwardArgs&, std::byte* memory);

}  // namespace weft::cuda
