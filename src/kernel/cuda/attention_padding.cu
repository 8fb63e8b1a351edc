// kernel/cuda/attention_padding.cu: clears padded positions, which cuDNN does not know or leaves.
//
// Right padding needs no mask under a causal one: a query below the length sees no key past it.
// Only the padded queries' own results have to be cleared. Where cuDNN has the lengths, it need not
// write what lies past them. A row that has no positions on the other side counts as empty.
#include <cstdint>

#include "kernel/cuda/attention.h"
#include "kernel/cuda/launch.h"

namespace weft::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kBlocks = 32;  // for each row of the batch

// Of a row without anything on the other side, or past the lengths, nothing is computed.
__device__ int64_t computed_length(const int32_t* lengths, const int32_t* other, int64_t b) {
  return lengths[b] < 0 || other[b] <= 0 ? 0 : lengths[b];
}

// Full rows cost only reading their lengths. Heads are cleared in 4-byte words.
__global__ void zero_padding_kernel(int64_t T, int64_t H, int64_t head_words, int64_t row,
                                    int64_t position, int64_t head, const int32_t* lengths,
                                    const int32_t* other, uint32_t* words, float* lse) {
  const int64_t b = blockIdx.y;
  for (int64_t t = computed_length(lengths, other, b) + blockIdx.x; t < T; t += gridDim.x) {
    uint32_t* at = words + b * row + t * position;
    for (int64_t i = threadIdx.x; i < H * head_words; i += blockDim.x) {
      at[i / head_words * head + i % head_words] = 0;
    }
    if (lse == nullptr) continue;
    for (int64_t h = threadIdx.x; h < H; h += blockDim.x) lse[(b * H + h) * T + t] = 0.0f;
  }
}

// 1e30 and not infinity: no product or difference with it can become NaN on the way to exp.
__global__ void raise_padding_lse_kernel(int64_t H, int64_t T, const int32_t* lengths,
                                         const int32_t* other, const float* lse, float* to) {
  const int64_t b = blockIdx.y;
  const int64_t length = computed_length(lengths, other, b);
  const int64_t first = b * H * T;
  for (int64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < H * T; i += gridDim.x * blockDim.x) {
    to[first + i] = i % T < length ? lse[first + i] : 1e30f;
  }
}

}  // namespace

PaddedHeads padded_queries(const AttentionOperands& a) {
  return {a.B, a.T, a.H, a.D, a.dtype, a.lengths, a.source_lengths};
}
PaddedHeads padded_keys(const AttentionOperands& a) {
  return {a.B, a.S, a.G, a.D, a.dtype, a.source_lengths, a.lengths};
}

void zero_padding(const Context& context, const PaddedHeads& padded, const HeadsOut& heads,
                  float* lse) {
  const int64_t per_word = 4 / dtype_bytes(padded.dtype);
  launch(context, "attention: zero padding", zero_padding_kernel,
         dim3(kBlocks, static_cast<unsigned>(padded.B)), dim3(kThreads), 0, padded.T, padded.H,
         padded.D / per_word, heads.row / per_word, heads.position / per_word,
         heads.head / per_word, padded.lengths, padded.other, static_cast<uint32_t*>(heads.data),
         lse);
}

void raise_padding_lse(const Context& context, const PaddedHeads& padded, const float* lse,
                       float* to) {
  launch(context, "attention: lse of padding", raise_padding_lse_kernel,
         dim3(kBlocks, static_cast<unsigned>(padded.B)), dim3(kThreads), 0, padded.H, padded.T,
         padded.lengths, padded.other, lse, to);
}

}  // namespace weft::cuda
