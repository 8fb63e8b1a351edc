// kernel/packed_qkv.h: heads packed side by side in rows, as strided operands of attention.
#pragma once

#include <cstddef>
#include <type_traits>

#include "kernel/kernels.h"

namespace weft {

// Element `at` of a tensor; null stays null.
template <typename Data>
Data* element_at(Data* data, Dtype dtype, int64_t at) {
  using Byte = std::conditional_t<std::is_const_v<Data>, const std::byte, std::byte>;
  return data ? static_cast<Byte*>(data) + at * dtype_bytes(dtype) : nullptr;
}

// (B, positions, heads, D), contiguous.
template <typename Data>
StridedHeads<Data> contiguous_heads(Data* data, int64_t positions, int64_t heads, int64_t D) {
  return {data, positions * heads * D, heads * D, D};
}

// q, k and v of rows (B, T, (H + 2 G) D): H heads of q, then G of k, G of v. Or their gradients.
template <typename Data>
struct PackedQkv {
  StridedHeads<Data> q, k, v;
};
template <typename Data>
PackedQkv<Data> packed_qkv(Data* qkv, const AttentionOperands& of) {
  const int64_t width = (of.H + 2 * of.G) * of.D;
  const auto from = [&](int64_t head) {
    return StridedHeads<Data>{element_at(qkv, of.dtype, head * of.D), of.T * width, width, of.D};
  };
  return {from(0), from(of.H), from(of.H + of.G)};
}

// Self-attention over packed rows: q, k, v and S of the operands, whose shape is set.
inline void set_packed_qkv(AttentionOperands* args, const void* qkv) {
  const auto [q, k, v] = packed_qkv(qkv, *args);
  args->q = q;
  args->k = k;
  args->v = v;
  args->S = args->T;
}
inline void set_packed_gradient(AttentionBackwardArgs* args, void* dqkv) {
  const auto [dq, dk, dv] = packed_qkv(dqkv, *args);
  args->dq = dq;
  args->dk = dk;
  args->dv = dv;
}

}  // namespace weft
