// kernel/ref/fill_cache.cpp: new keys and values into a cache.
#include <algorithm>

#include "kernel/ref/ref.h"

namespace weft::ref {

void fill_cache(const Context&, const FillCacheArgs& args) {
  for (int64_t b = 0; b < args.B; ++b) {
    const int64_t start = args.starts ? args.starts[b] : 0;
    for (int64_t t = 0; t < std::min<int64_t>(args.T, args.lengths[b]); ++t) {
      for (int64_t i = 0; i < args.G * args.D; ++i) {
        const int64_t g = i / args.D, d = i % args.D;
        const int64_t to = (b * args.max_positions + start + t) * args.G * args.D + i;
        put(args.k_cache, args.dtype, to, get(args.k.data, args.dtype, args.k.at(b, t, g) + d));
        put(args.v_cache, args.dtype, to, get(args.v.data, args.dtype, args.v.at(b, t, g) + d));
      }
    }
  }
}

}  // namespace weft::ref
