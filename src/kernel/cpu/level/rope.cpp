// kernel/cpu/level/rope.cpp: rotary positions: channel i turns with channel i + D / 2.
#include "kernel/cpu/level/ops.h"
#include "kernel/cpu/level/rows.h"

namespace weft::WEFT_LEVEL {
namespace {

template <typename T>
void turn_head(T* x, const float* cosine, const float* sine, int64_t half, Vec sign) {
  each_vector(half, [&](int64_t i, auto part) {
    const Vec c = load(cosine + i, part);
    const Vec s = load(sine + i, part) * sign;
    const Vec a = load(x + i, part);
    const Vec b = load(x + half + i, part);
    store(x + i, fnma(b, s, a * c), part);
    store(x + half + i, fma(a, s, b * c), part);
  });
}

template <typename T>
void turn_row(const RopeArgs& args, int64_t r) {
  const int64_t half = args.D / 2;
  const int64_t position = args.positions ? args.positions[r] : r % args.T;
  const Vec sign = splat(args.inverse ? -1.0f : 1.0f);
  T* row = static_cast<T*>(args.qkv) + r * (args.H + 2 * args.G) * args.D;
  for (int64_t head = 0; head < args.H + args.G; ++head) {
    turn_head(row + head * args.D, args.cosine + position * half, args.sine + position * half, half,
              sign);
  }
}

}  // namespace

void rope(const Context& context, const RopeArgs& args) {
  with_type(args.dtype, [&](auto value) {
    each_row(context, args.R, (args.H + args.G) * args.D,
             [&](int64_t r) { turn_row<decltype(value)>(args, r); });
  });
}

}  // namespace weft::WEFT_LEVEL
