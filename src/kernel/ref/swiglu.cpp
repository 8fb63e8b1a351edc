// kernel/ref/swiglu.cpp: silu(gate) * up and its gradient.
#include <cmath>

#include "kernel/ref/ref.h"

namespace weft::ref {

void swiglu(const Context&, const SwigluArgs& args) {
  for (int64_t r = 0; r < args.R; ++r) {
    for (int64_t f = 0; f < args.F; ++f) {
      const double gate = get(args.gate_up, args.dtype, 2 * r * args.F + f);
      const double up = get(args.gate_up, args.dtype, (2 * r + 1) * args.F + f);
      put(args.h, args.dtype, r * args.F + f, gate / (1.0 + std::exp(-gate)) * up);
    }
  }
}

void swiglu_backward(const Context&, const SwigluBackwardArgs& args) {
  for (int64_t r = 0; r < args.R; ++r) {
    for (int64_t f = 0; f < args.F; ++f) {
      const int64_t at_gate = 2 * r * args.F + f;
      const int64_t at_up = at_gate + args.F;
      const double gate = get(args.gate_up, args.dtype, at_gate);
      const double up = get(args.gate_up, args.dtype, at_up);
      const double dh = get(args.dh, args.dtype, r * args.F + f);
      const double sigmoid = 1.0 / (1.0 + std::exp(-gate));
      put(args.dgate_up, args.dtype, at_gate, dh * up * sigmoid * (1.0 + gate * (1.0 - sigmoid)));
      put(args.dgate_up, args.dtype, at_up, dh * gate * sigmoid);
      if (args.h) {
        put(args.h, args.dtype, r * args.F + f, gate / (1.0 + std::exp(-gate)) * up);
      }
    }
  }
}

}  // namespace weft::ref
