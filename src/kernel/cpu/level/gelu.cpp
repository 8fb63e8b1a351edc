// kernel/cpu/level/gelu.cpp: x times the normal distribution function of x, and its gradient.
#include "kernel/cpu/level/gelu_tanh.h"
#include "kernel/cpu/level/ops.h"
#include "kernel/cpu/level/rows.h"

namespace weft::WEFT_LEVEL {
namespace {

inline constexpr float kRootHalf = 0x1.6a09e6p-1f;       // sqrt(1 / 2)
inline constexpr float kDensityAtZero = 0x1.988454p-2f;  // 1 / sqrt(2 pi)

// As PyTorch, 1 + erf: below -5 the terms cancel, and what is left is good to 2^-24 of x.
template <typename V>
WEFT_INLINE V exact(V x) {
  return fma(erf(x * splat(kRootHalf)), splat(0.5f), splat(0.5f));
}
template <typename V>
WEFT_INLINE Gelu<V> exact_with_slope(V x) {
  const V below = exact(x);
  const V density = exp_of_small(x * x * splat(-0.5f)) * splat(kDensityAtZero);
  return {below, fma(x, density, below)};
}

template <typename T, bool kTanh>
[[gnu::flatten]] void gelu_piece(const T* x, T* y, int64_t n) {
  each_four(n, [&](int64_t i, int, auto part) {
    const auto v = load(x + i, part);
    if constexpr (kTanh) {
      store(y + i, v * with_tanh<T>(v), part);
    } else {
      store(y + i, v * exact(v), part);
    }
  });
}

template <typename T, bool kTanh>
[[gnu::flatten]] void gelu_piece_backward(const T* dy, const T* x, T* dx, T* y, int64_t n) {
  each_four(n, [&](int64_t i, int, auto part) {
    const auto v = load(x + i, part);
    const auto d = load(dy + i, part);
    const auto store_both = [&](const auto& at) {
      store(dx + i, d * at.slope, part);
      if (y) store(y + i, v * at.below, part);
    };
    if constexpr (kTanh) {
      store_both(tanh_with_slope<T>(v));
    } else {
      store_both(exact_with_slope(v));
    }
  });
}

}  // namespace

void gelu(const Context& context, const GeluArgs& args) {
  with_type(args.dtype, [&](auto value) {
    using T = decltype(value);
    const auto piece = args.approximate_tanh ? gelu_piece<T, true> : gelu_piece<T, false>;
    each_piece(context, args.n, [&](int64_t first, int64_t count) {
      piece(static_cast<const T*>(args.x) + first, static_cast<T*>(args.y) + first, count);
    });
  });
}

void gelu_backward(const Context& context, const GeluBackwardArgs& args) {
  with_type(args.dtype, [&](auto value) {
    using T = decltype(value);
    const auto piece =
        args.approximate_tanh ? gelu_piece_backward<T, true> : gelu_piece_backward<T, false>;
    each_piece(context, args.n, [&](int64_t first, int64_t count) {
      piece(static_cast<const T*>(args.dy) + first, static_cast<const T*>(args.x) + first,
            static_cast<T*>(args.dx) + first, args.y ? static_cast<T*>(args.y) + first : nullptr,
            count);
    });
  });
}

}  // namespace weft::WEFT_LEVEL
