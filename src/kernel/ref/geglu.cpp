// kernel/ref/geglu.cpp: gelu(gate) * up and its gradient, GELU in its tanh form.
#include "kernel/ref/gelu_slope.h"
#include "kernel/ref/ref.h"

namespace weft::ref {

void geglu(const Context&, const GegluArgs& args) {
  for (int64_t r = 0; r < args.R; ++r) {
    for (int64_t f = 0; f < args.F; ++f) {
      const double gate = get(args.gate_up, args.dtype, 2 * r * args.F + f);
      const double up = get(args.gate_up, args.dtype, (2 * r + 1) * args.F + f);
      put(args.h, args.dtype, r * args.F + f, gelu_with_tanh(gate).y * up);
    }
  }
}

void geglu_backward(const Context&, const GegluBackwardArgs& args) {
  for (int64_t r = 0; r < args.R; ++r) {
    for (int64_t f = 0; f < args.F; ++f) {
      const int64_t at_gate = 2 * r * args.F + f;
      const int64_t at_up = at_gate + args.F;
      const Gelu gelu = gelu_with_tanh(get(args.gate_up, args.dtype, at_gate));
      const double up = get(args.gate_up, args.dtype, at_up);
      const double dh = get(args.dh, args.dtype, r * args.F + f);
      put(args.dgate_up, args.dtype, at_gate, dh * up * gelu.slope);
      put(args.dgate_up, args.dtype, at_up, dh * gelu.y);
      if (args.h) put(args.h, args.dtype, r * args.F + f, gelu.y * up);
    }
  }
}

}  // namespace weft::ref
