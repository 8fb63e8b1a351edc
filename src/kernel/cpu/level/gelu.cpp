// kernel/cpu/level/gelu.cpp: x times the normal distribution function of x, and its gradient.
#include "kernel/cpu/level/ops.h"
#include "kernel/cpu/level/rows.h"
#include "kernel/cpu/level/simd_math.h"

namespace weft::WEFT_LEVEL {
namespace {

inline constexpr float kRootHalf = 0x1.6a09e6p-1f;       // sqrt(1 / 2)
inline constexpr float kDensityAtZero = 0x1.988454p-2f;  // 1 / sqrt(2 pi)
inline constexpr float kRoot = 0x1.988454p-1f;           // sqrt(2 / pi)
inline constexpr float kCubic = 0.044715f;

template <typename V>
struct Gelu {
  V below, slope;  // the distribution function, or its approximation; the derivative of x below
};

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

// (1 + tanh(u)) / 2 is sigmoid(2 u), whose smaller half, sigmoid(-|2 u|), is computed: both tails
// keep their digits, which the slope multiplies by up to 40. At 16 it is 0: larger values must not
// become infinity times zero.
template <typename V>
WEFT_INLINE V clamp(V x) {
  return maximum(splat(-16.0f), minimum(splat(16.0f), x));
}
template <typename T, typename V>
WEFT_INLINE V tail_of(V twice_u) {
  return sigmoid<T>(minimum(twice_u, zero() - twice_u));
}
template <typename V>
WEFT_INLINE V twice_inner(V x) {
  return x * fma(x * x, splat(2.0f * kRoot * kCubic), splat(2.0f * kRoot));
}
template <typename V>
WEFT_INLINE V from_tail(V twice_u, V tail) {
  return select(less(twice_u, zero()), tail, splat(1.0f) - tail);
}
template <typename T, typename V>
WEFT_INLINE V with_tanh(V x) {
  const V v = twice_inner(clamp(x));
  return from_tail(v, tail_of<T>(v));
}
// With s the sigmoid of 2 u: s + x s (1 - s) 2 u'.
template <typename T, typename V>
WEFT_INLINE Gelu<V> tanh_with_slope(V x) {
  const V c = clamp(x);
  const V v = twice_inner(c), tail = tail_of<T>(v);
  const V s = from_tail(v, tail);
  const V inner_slope = fma(c * c, splat(6.0f * kRoot * kCubic), splat(2.0f * kRoot));
  return {s, fma(c * tail * (splat(1.0f) - tail), inner_slope, s)};
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
