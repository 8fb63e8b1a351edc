// tests/kernel/attention_case.h: one call of attention and of its gradient, for every back end.
#pragma once

#include <fmt/core.h>

#include "kernel/packed_qkv.h"
#include "tests/kernel/common.h"

namespace weft {

struct AttentionCase {
  int64_t B, T, H, G, D;
  TestVector<int32_t> lengths;
  Dtype dtype = Dtype::kF32;
  TestVector<int32_t> positions = {};  // of packed rows
  bool padding_attends = false;
  AttentionDropout dropout = {};

  int64_t width() const { return (H + 2 * G) * D; }
  float scale() const { return 1.0f / std::sqrt(static_cast<float>(D)); }
  std::string text() const {
    return fmt::format("B {} T {} H {} G {} D {} {}{}{}", B, T, H, G, D, dtype_name(dtype),
                       positions.empty() ? "" : " packed",
                       padding_attends ? ", padding attends" : "") +
           (dropout.rate > 0 ? fmt::format(", dropout {}", dropout.rate) : "");
  }
};

// Row after row the lengths of its segments; the rest of T is padding.
inline AttentionCase packed(AttentionCase c, const std::vector<std::vector<int>>& rows) {
  c.lengths.clear();
  for (const std::vector<int>& segments : rows) {
    const size_t begin = c.positions.size();
    for (const int length : segments) {
      for (int t = 0; t < length; ++t) c.positions.push_back(t);
    }
    c.lengths.push_back(static_cast<int32_t>(c.positions.size() - begin));
    c.positions.resize(begin + static_cast<size_t>(c.T), 0);
  }
  return c;
}

inline void set_operands(const AttentionCase& c, const Buffer& qkv, AttentionOperands* args) {
  args->B = c.B;
  args->T = c.T;
  args->H = c.H;
  args->G = c.G;
  args->D = c.D;
  args->dtype = c.dtype;
  args->scale = c.scale();
  set_packed_qkv(args, qkv.data());
  args->source_lengths = c.lengths.data();
  args->lengths = c.padding_attends ? nullptr : args->source_lengths;
  args->positions = c.positions.empty() ? nullptr : c.positions.data();
  args->source_positions = args->positions;
  args->dropout = c.dropout;
}

inline Outputs forward(const AttentionCase& c, const Buffer& qkv, const Kernels& kernels,
                       Bench& bench) {
  Buffer out(c.dtype, c.B * c.T * c.H * c.D);
  Buffer lse(Dtype::kF32, c.B * c.H * c.T);
  AttentionArgs args;
  set_operands(c, qkv, &args);
  args.out = contiguous_heads(out.data(), c.T, c.H, c.D);
  args.lse = lse.floats();
  kernels.attention(bench.context(kernels.attention_workspace(args, bench.num_threads())), args);
  return {out, lse};
}

inline Buffer backward(const AttentionCase& c, const Buffer& qkv, const Outputs& forward_result,
                       const Buffer& dout, const Kernels& kernels, Bench& bench) {
  Buffer dqkv(c.dtype, c.B * c.T * c.width());
  AttentionBackwardArgs args;
  set_operands(c, qkv, &args);
  args.out = contiguous_heads(forward_result[0].data(), c.T, c.H, c.D);
  args.dout = contiguous_heads(dout.data(), c.T, c.H, c.D);
  args.lse = forward_result[1].floats();
  set_packed_gradient(&args, dqkv.data());
  const size_t bytes = kernels.attention_backward_workspace(args, bench.num_threads());
  kernels.attention_backward(bench.context(bytes), args);
  return dqkv;
}

// Every backend that supports the type against ref.
inline void check_forward(const AttentionCase& c, const Buffer& qkv) {
  compare_levels(
      "attention " + c.text(), c.dtype,
      [&](const Kernels& kernels, Bench& bench) { return forward(c, qkv, kernels, bench); },
      [&](size_t output) { return output == 0 ? attention_tolerance(c.dtype) : kFloatTolerance; });
}
inline void check_gradient(const AttentionCase& c, const Buffer& qkv, const Buffer& dout) {
  Bench bench(1);
  const Outputs result = forward(c, qkv, ref_kernels(), bench);
  compare_levels(
      "attention gradient " + c.text(), c.dtype,
      [&](const Kernels& kernels, Bench& b) {
        return Outputs{backward(c, qkv, result, dout, kernels, b)};
      },
      attention_tolerance(c.dtype));
}

}  // namespace weft
