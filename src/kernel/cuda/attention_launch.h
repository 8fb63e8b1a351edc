// kernel/cuda/attention_launch.h: from the arguments of attention to a kernel compiled for them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include "kernel/cuda/attention.h"
#include "kernel/cuda/attention_tiles.h"
#include "kernel/cuda/dispatch.h"
#include "kernel/cuda/launch.h"

namespace weft::cuda {

// fn(Value, integral constant kD): the smallest kD that holds D. Types of 16 bits: only heads that
// the kernels of attention_tensor.h do not handle.
template <typename Fn>
void with_attention_shape(Dtype dtype, int64_t D, const Fn& fn) {
  if (D > kMostHeadDim) refuse("attention with too large a head dim");
  with_type(dtype, [&](auto value) {
    if constexpr (std::is_same_v<decltype(value), float>) {
      if (D <= 32) return fn(value, std::integral_constant<int, 32>{});
      if (D <= 64) return fn(value, std::integral_constant<int, 64>{});
      if (D <= 128) return fn(value, std::integral_constant<int, 128>{});
    }
    fn(value, std::integral_constant<int, 256>{});
  });
}

template <typename Value, typename Data>
Strided<Value> strided(const StridedHeads<Data>& heads) {
  return {static_cast<Value*>(heads.data), heads.row, heads.position, heads.head};
}

// Whether all rows of these tensors begin at multiples of this many elements.
template <typename Value, typename Data>
bool begin_at(int64_t multiple, std::initializer_list<StridedHeads<Data>> tensors) {
  for (const StridedHeads<Data>& t : tensors) {
    const auto address = reinterpret_cast<uintptr_t>(t.data) / sizeof(Value);
    if (address % static_cast<uintptr_t>(multiple) != 0 || t.row % multiple != 0 ||
        t.position % multiple != 0 || t.head % multiple != 0)
      return false;
  }
  return true;
}

// The kernels' steps from one position to the next are int.
template <typename Data>
void check_steps(std::initializer_list<StridedHeads<Data>> tensors) {
  for (const StridedHeads<Data>& t : tensors) {
    if (t.position > INT32_MAX) refuse("attention over positions of more than 2^31 elements");
  }
}

template <typename Value>
Heads heads_of(const AttentionOperands& args, std::initializer_list<HeadsIn> read,
               std::initializer_list<HeadsOut> written) {
  check_steps(read);
  return {.T = static_cast<int>(args.T),
          .S = static_cast<int>(args.S),
          .H = static_cast<int>(args.H),
          .G = static_cast<int>(args.G),
          .D = static_cast<int>(args.D),
          .columns = static_cast<int>(ceil_div(args.D, 16) * 16),
          .vectored = args.D % kPack<Value> == 0 && begin_at<Value>(kPack<Value>, read),
          .paired = args.D % 2 == 0 && begin_at<Value>(2, written),
          .causal = args.causal,
          // One that covers everything has no effect; a larger one may not be an int.
          .window = static_cast<int>(std::min(args.window, std::max(args.T, args.S))),
          .lengths = args.lengths,
          .source_lengths = args.source_lengths,
          .positions = args.positions,
          .source_positions = args.source_positions};
}

}  // namespace weft::cuda
