// kernel/cuda/rope.cu: rotary positions: channel i turns with channel i + D / 2.
#include <algorithm>

#include "kernel/cuda/dispatch.h"
#include "kernel/cuda/launch.h"
#include "kernel/cuda/ops.h"

namespace weft::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kHeads =
    4;  // a thread rotates the same channels of this many heads: angles are read once

// Units of a row: (group of heads, vector of channels). A block takes `rows` rows.
template <typename T, int kWidth>
__global__ void __launch_bounds__(kThreads) rope_kernel(RopeArgs args, int rows) {
  const int half = static_cast<int>(args.D / 2), vectors = half / kWidth;
  const int heads = static_cast<int>(args.H + args.G);
  const int units = vectors * ((heads + kHeads - 1) / kHeads);
  const float sign = args.inverse ? -1.0f : 1.0f;
  for (int u = threadIdx.x; u < rows * units; u += kThreads) {
    const int64_t r = int64_t{blockIdx.x} * rows + u / units;
    if (r >= args.R) return;
    const int i = u % units % vectors * kWidth;
    const int first = u % units / vectors * kHeads;
    const int64_t position = args.positions ? args.positions[r] : r % args.T;
    T* x = static_cast<T*>(args.qkv) + r * (args.H + 2 * args.G) * args.D + i;
    Raw<T, kWidth> low[kHeads], high[kHeads];
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
      if (first + h >= heads) break;
      low[h] = load_raw<kWidth>(x + (first + h) * args.D);
      high[h] = load_raw<kWidth>(x + (first + h) * args.D + half);
    }
    float cosine[kWidth], sine[kWidth];
    load(args.cosine + position * half + i, cosine);
    load(args.sine + position * half + i, sine);
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
      if (first + h >= heads) break;
      float a[kWidth], b[kWidth];
      unpack(low[h], a);
      unpack(high[h], b);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) {
        const float s = sine[k] * sign, c = cosine[k], old = a[k];
        a[k] = fmaf(-b[k], s, old * c);
        b[k] = fmaf(old, s, b[k] * c);
      }
      store(x + (first + h) * args.D, a);
      store(x + (first + h) * args.D + half, b);
    }
  }
}

}  // namespace

void rope(const Context& context, const RopeArgs& args) {
  with_type(args.dtype, [&](auto value) {
    using T = decltype(value);
    const bool vectored = is_vectored<T>(args.D / 2, {args.qkv, args.cosine, args.sine});
    with_width<T>(vectored, [&](auto width) {
      const int64_t units = args.D / 2 / width * ceil_div(args.H + args.G, kHeads);
      const int rows =
          static_cast<int>(std::max<int64_t>(1, kThreads / std::max<int64_t>(1, units)));
      launch(context, "rope", rope_kernel<T, width>, ceil_div(args.R, rows), kThreads, 0, args,
             rows);
    });
  });
}

}  // namespace weft::cuda
