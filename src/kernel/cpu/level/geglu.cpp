// kernel/cpu/level/geglu.cpp: gelu(gate) * up and its gradient, GELU in its tanh form.
#include "kernel/cpu/level/gelu_tanh.h"
#include "kernel/cpu/level/ops.h"
#include "kernel/cpu/level/rows.h"

namespace weft::WEFT_LEVEL {
namespace {

template <typename T>
[[gnu::flatten]] void geglu_row(const GegluArgs& args, int64_t r) {
  const T* gate = static_cast<const T*>(args.gate_up) + 2 * r * args.F;
  const T* up = gate + args.F;
  T* h = static_cast<T*>(args.h) + r * args.F;
  each_four(args.F, [&](int64_t i, int, auto part) {
    const auto g = load(gate + i, part);
    store(h + i, g * with_tanh<T>(g) * load(up + i, part), part);
  });
}

template <typename T>
[[gnu::flatten]] void geglu_row_backward(const GegluBackwardArgs& args, int64_t r) {
  const T* gate = static_cast<const T*>(args.gate_up) + 2 * r * args.F;
  const T* up = gate + args.F;
  const T* dh = static_cast<const T*>(args.dh) + r * args.F;
  T* dgate = static_cast<T*>(args.dgate_up) + 2 * r * args.F;
  T* dup = dgate + args.F;
  T* h = args.h ? static_cast<T*>(args.h) + r * args.F : nullptr;
  each_four(args.F, [&](int64_t i, int, auto part) {
    const auto g = load(gate + i, part);
    const auto at = tanh_with_slope<T>(g);
    const auto y = g * at.below;
    const auto d = load(dh + i, part);
    const auto u = load(up + i, part);
    store(dgate + i, d * u * at.slope, part);
    store(dup + i, d * y, part);
    if (h) store(h + i, y * u, part);
  });
}

}  // namespace

void geglu(const Context& context, const GegluArgs& args) {
  with_type(args.dtype, [&](auto value) {
    each_row(context, args.R, args.F, [&](int64_t r) { geglu_row<decltype(value)>(args, r); });
  });
}

void geglu_backward(const Context& context, const GegluBackwardArgs& args) {
  with_type(args.dtype, [&](auto value) {
    each_row(context, args.R, args.F,
             [&](int64_t r) { geglu_row_backward<decltype(value)>(args, r); });
  });
}

}  // namespace weft::WEFT_LEVEL
