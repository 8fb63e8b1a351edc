// kernel/cuda/attention_segments.cu: the mask that separates the segments of a packed row for
// cuDNN.
//
// cuDNN adds it to the scores: 0 where a query may see a key, else a number so low that the
// exponential of the masked score is exactly zero (k and v being finite). Not infinity: tiles in
// which a query sees nothing would produce NaNs. Above the diagonal cuDNN's own causal mask
// applies.
#include <cstdint>

#include "kernel/cuda/attention.h"
#include "kernel/cuda/dispatch.h"
#include "kernel/cuda/launch.h"

namespace weft::cuda {
namespace {

constexpr int kThreads = 256;
constexpr float kUnseen = -30000.0f;  // representable in fp16 too

// Eight keys of a query per thread and iteration. A segment begins `position` keys before the
// query.
template <typename T>
__global__ void segment_mask_kernel(int64_t row_length, int64_t pitch, const int32_t* positions,
                                    T* mask) {
  const int64_t query = blockIdx.x, b = blockIdx.y;
  const int64_t begin = query - positions[b * row_length + query];
  T* row = mask + (b * row_length + query) * pitch;
  for (int64_t key = 8 * int64_t{threadIdx.x}; key < pitch; key += 8 * kThreads) {
    float values[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) values[i] = key + i < begin ? kUnseen : 0.0f;
    store(row + key, values);
  }
}

}  // namespace

void segment_mask(const Context& context, int64_t B, int64_t T, Dtype dtype,
                  const int32_t* positions, void* mask) {
  const dim3 blocks(static_cast<unsigned>(T), static_cast<unsigned>(B));
  with_type(dtype, [&](auto value) {
    using Value = decltype(value);
    launch(context, "attention: mask of segments", segment_mask_kernel<Value>, blocks,
           dim3(kThreads), 0, T, segment_mask_pitch(T), positions, static_cast<Value*>(mask));
  });
}

}  // namespace weft::cuda
