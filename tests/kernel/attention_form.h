// tests/kernel/attention_form.h: attention with separate operands: any layout, source, mask and
// bias.
#pragma once

#include <fmt/core.h>

#include "kernel/attention_bias.h"
#include "kernel/packed_qkv.h"
#include "tests/kernel/common.h"

namespace weft {

struct AttentionForm {
  int64_t B, T, S, H, G, D;
  Dtype dtype = Dtype::kF32;
  bool causal = false;
  int64_t window = 0;
  TestVector<int32_t> lengths = {}, source_lengths = {}, positions = {}, source_positions = {};
  AttentionBias bias = {};
  AttentionDropout dropout = {};
  float scale = 0;       // 0: 1 / sqrt(D)
  bool is_self = false;  // lengths and positions of the source are those of the queries

  bool has_table() const { return bias.kind == AttentionBias::Kind::kRelative; }
  int64_t num_queries() const { return B * T * H * D; }
  int64_t num_keys() const { return B * S * G * D; }
  std::string text() const {
    return fmt::format("B {} T {} S {} H {} G {} D {} {} causal {} window {} bias {}{}{}", B, T, S,
                       H, G, D, dtype_name(dtype), causal, window, static_cast<int>(bias.kind),
                       positions.empty() ? "" : " packed", dropout.rate > 0 ? " dropout" : "");
  }
};

inline AttentionForm with_alibi(AttentionForm f, int64_t first_head, int64_t num_heads) {
  f.bias = {AttentionBias::Kind::kAlibi, first_head, num_heads};
  return f;
}
inline AttentionForm with_table(AttentionForm f, int buckets, int64_t max_distance) {
  f.bias.kind = AttentionBias::Kind::kRelative;
  f.bias.buckets = relative_buckets(buckets, max_distance, !f.causal);
  return f;
}
// Row after row the lengths of segments of the queries and of the source.
inline AttentionForm with_segments(AttentionForm f, const std::vector<std::vector<int>>& queries,
                                   const std::vector<std::vector<int>>& source) {
  const auto fill = [](const auto& rows, int64_t n, auto* lengths, auto* positions) {
    for (const std::vector<int>& segments : rows) {
      const size_t begin = positions->size();
      for (const int length : segments) {
        for (int t = 0; t < length; ++t) positions->push_back(t);
      }
      lengths->push_back(static_cast<int32_t>(positions->size() - begin));
      positions->resize(begin + static_cast<size_t>(n), 0);
    }
  };
  fill(queries, f.T, &f.lengths, &f.positions);
  fill(source, f.S, &f.source_lengths, &f.source_positions);
  return f;
}

// q, k, v and the bias table; or their gradients.
struct FormInputs {
  Buffer q, k, v, table;
  explicit FormInputs(const AttentionForm& f)
      : q(Buffer::random(f.dtype, f.num_queries(), 1)),
        k(Buffer::random(f.dtype, f.num_keys(), 2)),
        v(Buffer::random(f.dtype, f.num_keys(), 3)),
        table(Buffer::random(f.dtype, f.bias.buckets.count * f.H, 4)) {}
};

inline void set_operands(const AttentionForm& f, const FormInputs& in, AttentionOperands* args) {
  const auto pointer = [](const TestVector<int32_t>& v) { return v.empty() ? nullptr : v.data(); };
  args->B = f.B;
  args->T = f.T;
  args->S = f.S;
  args->H = f.H;
  args->G = f.G;
  args->D = f.D;
  args->dtype = f.dtype;
  args->scale = f.scale != 0 ? f.scale : 1.0f / std::sqrt(static_cast<float>(f.D));
  args->causal = f.causal;
  args->window = f.window;
  args->q = contiguous_heads(in.q.data(), f.T, f.H, f.D);
  args->k = contiguous_heads(in.k.data(), f.S, f.G, f.D);
  args->v = contiguous_heads(in.v.data(), f.S, f.G, f.D);
  args->lengths = pointer(f.lengths);
  args->has_source = !f.is_self;
  args->source_lengths = f.is_self ? args->lengths : pointer(f.source_lengths);
  args->positions = pointer(f.positions);
  args->source_positions = f.is_self ? args->positions : pointer(f.source_positions);
  args->bias = f.bias;
  args->bias.table = f.has_table() ? in.table.data() : nullptr;
  args->dropout = f.dropout;
}

// out, lse
inline Outputs attend(const AttentionForm& f, const FormInputs& in, const Kernels& kernels,
                      Bench& bench) {
  Buffer out(f.dtype, f.num_queries()), lse(Dtype::kF32, f.B * f.H * f.T);
  AttentionArgs args;
  set_operands(f, in, &args);
  args.out = contiguous_heads(out.data(), f.T, f.H, f.D);
  args.lse = lse.floats();
  kernels.attention(bench.context(kernels.attention_workspace(args, bench.num_threads())), args);
  return {out, lse};
}

// dq, dk, dv, dtable (added to what `into` holds, where there is one)
inline Outputs gradients(const AttentionForm& f, const FormInputs& in, const Outputs& forward,
                         const Buffer& dout, const Kernels& kernels, Bench& bench,
                         const Buffer* into = nullptr, bool is_frozen = false) {
  Buffer dq(f.dtype, f.num_queries()), dk(f.dtype, f.num_keys()), dv(f.dtype, f.num_keys());
  Buffer dtable = into ? *into : Buffer(Dtype::kF32, f.bias.buckets.count * f.H);
  AttentionBackwardArgs args;
  set_operands(f, in, &args);
  args.out = contiguous_heads(forward[0].data(), f.T, f.H, f.D);
  args.dout = contiguous_heads(dout.data(), f.T, f.H, f.D);
  args.lse = forward[1].floats();
  args.dq = contiguous_heads(dq.data(), f.T, f.H, f.D);
  args.dk = contiguous_heads(dk.data(), f.S, f.G, f.D);
  args.dv = contiguous_heads(dv.data(), f.S, f.G, f.D);
  args.dtable = f.has_table() && !is_frozen ? dtable.data() : nullptr;
  args.grad_dtype = dtable.dtype();
  args.accumulate = into != nullptr;
  const size_t bytes = kernels.attention_backward_workspace(args, bench.num_threads());
  kernels.attention_backward(bench.context(bytes), args);
  return {dq, dk, dv, dtable};
}

inline Buffer dout_of(const AttentionForm& f) {
  return Buffer::random(f.dtype, f.num_queries(), 5);
}

}  // namespace weft
