// kernel/cuda/fill_cache.cu: copies of new keys and values into a cache.
#include "kernel/cuda/dispatch.h"
#include "kernel/cuda/launch.h"
#include "kernel/cuda/ops.h"

namespace weft::cuda {
namespace {

constexpr int kThreads = 128;

// A thread copies kWidth elements of a key and of a value.
template <typename Value, int kWidth>
__global__ void fill_cache_kernel(FillCacheArgs args) {
  const int64_t b = blockIdx.z, t = blockIdx.y, columns = args.G * args.D;
  const int64_t i = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kWidth;
  if (t >= args.lengths[b] || i >= columns) return;
  const int64_t g = i / args.D, d = i % args.D;
  const int64_t start = args.starts ? args.starts[b] : 0;
  const int64_t to = (b * args.max_positions + start + t) * columns + i;
  const auto copy = [&](const HeadsIn& from, void* cache) {
    const Value* data = static_cast<const Value*>(from.data) + from.at(b, t, g) + d;
    store_raw<kWidth>(static_cast<Value*>(cache) + to, load_raw<kWidth>(data));
  };
  copy(args.k, args.k_cache);
  copy(args.v, args.v_cache);
}

}  // namespace

void fill_cache(const Context& context, const FillCacheArgs& args) {
  with_type(args.dtype, [&](auto value) {
    using Value = decltype(value);
    const bool vectored =
        is_vectored<Value>(args.D | strides_of(args.k) | strides_of(args.v),
                           {args.k.data, args.v.data, args.k_cache, args.v_cache});
    with_width<Value>(vectored, [&](auto width) {
      const int64_t blocks = ceil_div(args.G * args.D, kThreads * width);
      launch(context, "fill cache", fill_cache_kernel<Value, width>,
             dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(args.T),
                  static_cast<unsigned>(args.B)),
             dim3(kThreads), 0, args);
    });
  });
}

}  // namespace weft::cuda
