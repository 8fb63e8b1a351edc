// kernel/cuda/dropout.cu: dropout of an activation.
//
// A block works on one row of the batch, whose key its first thread computes; meanwhile the others'
// loads are in flight. A thread takes a vector of columns: with 16 bytes that begin at a multiple
// of four of the logical columns it draws a block of words per four elements, else one per element.
#include "kernel/cuda/dispatch.h"
#include "kernel/cuda/launch.h"
#include "kernel/cuda/ops.h"
#include "kernel/dropout.h"

namespace weft::cuda {
namespace {

constexpr int kThreads = 256;

struct ElementDraws {
  uint64_t seed;
  int64_t site, first_column;
  uint32_t threshold;
  float scale;
  const int64_t* rows;
};

// v: the columns from `column` of the logical tensor on, at position t.
template <int kWidth>
__device__ __forceinline__ void drop(const ElementDraws& d, const DropoutKey& key, int64_t t,
                                     int64_t column, float (&v)[kWidth]) {
  constexpr int kQuad = kWidth % 4 == 0 ? 4 : 1;
#pragma unroll
  for (int k = 0; k < kWidth; k += kQuad) {
    const PhiloxBlock words = element_dropout_words(key, t, (column + k) / kDropoutQuad);
    if constexpr (kQuad == 4) {
#pragma unroll
      for (int w = 0; w < 4; ++w) v[k + w] *= words.word[w] < d.threshold ? 0.0f : d.scale;
    } else {
      const int w = static_cast<int>(column % kDropoutQuad);  // not an index: words has no address
      const uint32_t word = w == 0   ? words.word[0]
                            : w == 1 ? words.word[1]
                            : w == 2 ? words.word[2]
                                     : words.word[3];
      v[k] *= word < d.threshold ? 0.0f : d.scale;
    }
  }
}

// vectors: of a position. blocks: of a row of the batch.
template <typename T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    dropout_kernel(unsigned positions, unsigned vectors, unsigned blocks, ElementDraws d,
                   const T* x, T* y) {
  __shared__ DropoutKey key;
  const unsigned b = blockIdx.x / blocks;
  const int64_t i = int64_t{blockIdx.x - b * blocks} * kThreads + threadIdx.x;  // vector of the row
  const bool is_here = i < int64_t{positions} * vectors;
  const int64_t at = (int64_t{b} * positions * vectors + i) * kWidth;
  Raw<T, kWidth> raw{};
  if (is_here) raw = load_raw<kWidth>(x + at);
  if (threadIdx.x == 0) key = element_dropout_key(d.seed, d.site, d.rows[2 * b], d.rows[2 * b + 1]);
  __syncthreads();
  if (!is_here) return;
  // Divisions of 64 bits are slow, and rows that need them are rare.
  const int64_t t = i <= UINT32_MAX ? static_cast<uint32_t>(i) / vectors : i / vectors;
  float v[kWidth];
  unpack(raw, v);
  drop(d, key, t, d.first_column + (i - t * vectors) * kWidth, v);
  store(y + at, v);
}

}  // namespace

void dropout(const Context& context, const DropoutArgs& args) {
  const ElementDraws draws = {args.seed,
                              args.site,
                              args.first_column,
                              dropout_threshold(args.rate),
                              dropout_scale(args.rate),
                              args.rows};
  with_type(args.dtype, [&](auto value) {
    using T = decltype(value);
    const bool vectored =
        is_vectored<T>(args.C, {args.x, args.y}) && args.first_column % kDropoutQuad == 0;
    with_width<T>(vectored, [&](auto width) {
      const int64_t vectors = args.C / width, blocks = ceil_div(args.T * vectors, kThreads);
      launch(context, "dropout", dropout_kernel<T, width>, static_cast<unsigned>(args.B * blocks),
             kThreads, 0, args.T, vectors, blocks, draws, args.x, args.y);
    });
  });
}

}  // namespace weft::cuda
