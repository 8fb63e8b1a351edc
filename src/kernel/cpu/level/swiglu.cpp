// kernel/cpu/level/swiglu.cpp: silu(gate) * up and its gradient.
#include "kernel/cpu/level/ops.h"
#include "kernel/cpu/level/rows.h"
#include "kernel/cpu/level/simd_math.h"

namespace weft::WEFT_LEVEL {
namespace {

template <typename T>
[[gnu::flatten]] void swiglu_row(const SwigluArgs& args, int64_t r) {
  const T* gate = static_cast<const T*>(args.gate_up) + 2 * r * args.F;
  const T* up = gate + args.F;
  T* h = static_cast<T*>(args.h) + r * args.F;
  each_four(args.F, [&](int64_t i, int, auto part) {
    const auto g = load(gate + i, part);
    store(h + i, g * sigmoid<T>(g) * load(up + i, part), part);
  });
}

// silu' = sigmoid (1 + gate (1 - sigmoid))
template <typename T>
[[gnu::flatten]] void swiglu_row_backward(const SwigluBackwardArgs& args, int64_t r) {
  const T* gate = static_cast<const T*>(args.gate_up) + 2 * r * args.F;
  const T* up = gate + args.F;
  const T* dh = static_cast<const T*>(args.dh) + r * args.F;
  T* dgate = static_cast<T*>(args.dgate_up) + 2 * r * args.F;
  T* dup = dgate + args.F;
  T* h = args.h ? static_cast<T*>(args.h) + r * args.F : nullptr;
  each_four(args.F, [&](int64_t i, int, auto part) {
    const auto g = load(gate + i, part);
    const auto s = sigmoid<T>(g);
    const auto d = load(dh + i, part) * s;
    const auto slope = fma(g, splat(1.0f) - s, splat(1.0f));
    const auto u = load(up + i, part);
    store(dgate + i, d * u * slope, part);
    store(dup + i, d * g, part);
    if (h) store(h + i, g * s * u, part);
  });
}

}  // namespace

void swiglu(const Context& context, const SwigluArgs& args) {
  with_type(args.dtype, [&](auto value) {
    each_row(context, args.R, args.F, [&](int64_t r) { swiglu_row<decltype(value)>(args, r); });
  });
}

void swiglu_backward(const Context& context, const SwigluBackwardArgs& args) {
  with_type(args.dtype, [&](auto value) {
    each_row(context, args.R, args.F,
             [&](int64_t r) { swiglu_row_backward<decltype(value)>(args, r); });
  });
}

}  // namespace weft::WEFT_LEVEL
