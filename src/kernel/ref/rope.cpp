// kernel/ref/rope.cpp: rotary positions: channel i turns with channel i + D / 2.
#include "kernel/ref/ref.h"

namespace weft::ref {

void rope(const Context&, const RopeArgs& args) {
  const int64_t half = args.D / 2;
  const int64_t width = (args.H + 2 * args.G) * args.D;
  for (int64_t r = 0; r < args.R; ++r) {
    const int64_t position = args.positions ? args.positions[r] : r % args.T;
    for (int64_t head = 0; head < args.H + args.G; ++head) {
      for (int64_t i = 0; i < half; ++i) {
        const int64_t first = r * width + head * args.D + i;
        const double cosine = args.cosine[position * half + i];
        const double sine = args.sine[position * half + i] * (args.inverse ? -1.0 : 1.0);
        const double a = get(args.qkv, args.dtype, first);
        const double b = get(args.qkv, args.dtype, first + half);
        put(args.qkv, args.dtype, first, a * cosine - b * sine);
        put(args.qkv, args.dtype, first + half, b * cosine + a * sine);
      }
    }
  }
}

}  // namespace weft::ref
