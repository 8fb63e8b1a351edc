// kernel/cuda/attention_padding.cu: clears padded positions, of which cuDNN does not know.
//
// Right padding needs no mask under a causal one: a query below the length sees no key past it.
// Only the padded queries' own results have to be cleared.
#include <cstdint>

#include "kernel/cuda/attention.h"
#include "kernel/cuda/launch.h"

namespace weft::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kBlocks = 32;  // for each row of the batch

// Full rows cost only reading their length. Rows are cleared in 4-byte words.
__global__ void zero_padding_kernel(int64_t T, int64_t row_words, const int32_t* lengths,
                                    uint32_t* rows, int64_t H, float* lse) {
  const int64_t b = blockIdx.y;
  const int64_t length = lengths[b] < 0 ? 0 : lengths[b];
  for (int64_t t = length + blockIdx.x; t < T; t += gridDim.x) {
    uint32_t* row = rows + (b * T + t) * row_words;
    for (int64_t i = threadIdx.x; i < row_words; i += blockDim.x) row[i] = 0;
    if (lse == nullptr) continue;
    for (int64_t h = threadIdx.x; h < H; h += blockDim.x) lse[(b * H + h) * T + t] = 0.0f;
  }
}

// 1e30 and not infinity: no product or difference with it can become NaN on the way to exp.
__global__ void raise_padding_lse_kernel(int64_t H, int64_t T, const int32_t* lengths,
                                         const float* lse, float* to) {
  const int64_t b = blockIdx.y;
  const int64_t length = lengths[b];
  const int64_t first = b * H * T;
  for (int64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < H * T; i += gridDim.x * blockDim.x) {
    to[first + i] = i % T < length ? lse[first + i] : 1e30f;
  }
}

}  // namespace

void zero_padding(const Context& context, int64_t B, int64_t T, int64_t width, Dtype dtype,
                  const int32_t* lengths, void* rows, int64_t H, float* lse) {
  launch(context, "attention: zero padding", zero_padding_kernel,
         dim3(kBlocks, static_cast<unsigned>(B)), dim3(kThreads), 0, T,
         width * (dtype == Dtype::kF32 ? 4 : 2) / 4, lengths, static_cast<uint32_t*>(rows), H, lse);
}

void raise_padding_lse(const Context& context, int64_t B, int64_t H, int64_t T,
                       const int32_t* lengths, const float* lse, float* to) {
  launch(context, "attention: lse of padding", raise_padding_lse_kernel,
         dim3(kBlocks, static_cast<unsigned>(B)), dim3(kThreads), 0, H, T, lengths, lse, to);
}

}  // namespace weft::cuda
