// kernel/cuda/attention_launch.h: from the arguments of attention to a kernel compiled for them.
#pragma once

#include <initializer_list>
#include <type_traits>

#include "kernel/cuda/attention_tiles.h"
#include "kernel/cuda/dispatch.h"
#include "kernel/cuda/launch.h"

namespace weft::cuda {

// fn(Value, integral constant kD): the smallest kD that holds D.
template <typename Fn>
void with_attention_shape(Dtype dtype, int64_t D, const Fn& fn) {
  if (D > kMostHeadDim) refuse("attention with too large a head dim");
  with_type(dtype, [&](auto value) {
    if (D <= 32) {
      fn(value, std::integral_constant<int, 32>{});
    } else if (D <= 64) {
      fn(value, std::integral_constant<int, 64>{});
    } else if (D <= 128) {
      fn(value, std::integral_constant<int, 128>{});
    } else {
      fn(value, std::integral_constant<int, 256>{});
    }
  });
}

// addresses: of all tensors that are read as rows.
template <typename Value, typename Args>
Heads heads_of(const Args& args, std::initializer_list<const void*> addresses) {
  return {.T = static_cast<int>(args.T),
          .H = static_cast<int>(args.H),
          .G = static_cast<int>(args.G),
          .D = static_cast<int>(args.D),
          .columns = static_cast<int>(ceil_div(args.D, 16) * 16),
          .vectored = is_vectored<Value>(args.D, addresses),
          .padding_attends = args.padding_attends,
          .lengths = args.lengths,
          .positions = args.positions};
}

}  // namespace weft::cuda
