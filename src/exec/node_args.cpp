// exec/node_args.cpp: one function an operation; shapes come from the values.
#include "exec/node_args.h"

#include "exec/memory_plan.h"

namespace weft {
namespace {

const std::byte* at_column(const View& v, Ref dy, int64_t column) {
  const std::byte* base = v.at<std::byte>(dy);
  return base ? base + column * dtype_bytes(v.value(dy).dtype) : nullptr;
}

// The inputs of attention that may be missing: positions from `first` on, the rows' numbers last.
const int32_t* attention_positions(const View& v, const Node& node, size_t first) {
  const size_t count = node.inputs.size() - (node.attr.dropout > 0 ? 1 : 0);
  return count > first ? v.at<int32_t>(node.inputs[first]) : nullptr;
}

AttentionDropout attention_dropout(const View& v, const Node& node) {
  if (node.attr.dropout == 0) return {};
  return {node.attr.dropout, node.attr.dropout_seed, node.attr.dropout_site, node.attr.first_head,
          v.at<int64_t>(node.inputs.back())};
}

alignas(kAlignment) std::byte nowhere[kAlignment];

}  // namespace

Nowhere::Nowhere(const Graph& graph) : data_(graph.values.size(), nowhere), view_{graph, data_} {}

Stack stacked(const View& v, const std::vector<Ref>& refs, size_t begin, int count) {
  Stack s;
  s.count = count;
  s.ld = v.value(refs[begin]).shape[1];
  for (int p = 0; p < count; ++p) {
    const Ref r = refs[begin + static_cast<size_t>(p)];
    s.part[p] = v.at(r);
    s.rows[p] = v.value(r).shape[0];
  }
  return s;
}

Stack single_stack(void* data, int64_t rows, int64_t ld) {
  Stack s;
  s.count = 1;
  s.part[0] = data;
  s.rows[0] = rows;
  s.ld = ld;
  return s;
}

GemmArgs linear_args(const View& v, const Node& node) {
  const Ref x = node.inputs[0], y = node.outputs[0];
  GemmArgs a{};
  a.M = v.tokens(x);
  a.N = v.value(y).shape.back();
  a.K = v.value(x).shape.back();
  a.dtype = v.value(x).dtype;
  a.c_dtype = v.value(y).dtype;
  a.a = v.at(x);
  a.lda = a.K;
  a.b = stacked(v, node.inputs, 1, node.attr.parts);
  a.b_transposed = true;
  a.c = single_stack(v.at(y), a.M, a.N);
  for (int p = 0; node.attr.has_bias && p < node.attr.parts; ++p) {
    a.bias[p] = v.at(node.inputs[static_cast<size_t>(1 + node.attr.parts + p)]);
  }
  return a;
}

GemmArgs linear_dx_args(const View& v, const Node& node) {
  const Ref dy = node.inputs[0], dx = node.outputs[0];
  GemmArgs a{};
  a.M = v.tokens(dy);
  a.N = v.value(dx).shape.back();
  a.K = v.value(dy).shape.back();
  a.dtype = v.value(dy).dtype;
  a.c_dtype = v.value(dx).dtype;
  a.a = v.at(dy);
  a.lda = a.K;
  a.b = stacked(v, node.inputs, 1, node.attr.parts);
  a.c = single_stack(v.at(dx), a.M, a.N);
  return a;
}

GemmArgs linear_dw_args(const View& v, const Node& node) {
  const Ref dy = node.inputs[0], x = node.inputs[1];
  GemmArgs a{};
  a.c = stacked(v, node.outputs, 0, node.attr.parts);
  for (int p = 0; p < a.c.count; ++p) a.M += a.c.rows[p];
  a.N = v.value(x).shape.back();
  a.K = v.tokens(dy);
  a.dtype = v.value(dy).dtype;
  a.c_dtype = v.value(node.outputs[0]).dtype;
  a.a = at_column(v, dy, node.attr.column);
  a.lda = v.value(dy).shape.back();
  a.a_transposed = true;
  a.b = single_stack(v.at(x), a.K, a.N);
  return a;
}

BiasBackwardArgs bias_grad_args(const View& v, const Node& node) {
  const Ref dy = node.inputs[0];
  BiasBackwardArgs a{};
  a.R = v.tokens(dy);
  a.N = v.value(dy).shape.back();
  a.dtype = v.value(dy).dtype;
  a.grad_dtype = v.value(node.outputs[0]).dtype;
  a.dy = at_column(v, dy, node.attr.column);
  a.count = node.attr.parts;
  for (int p = 0; p < a.count; ++p) {
    a.db[p] = v.at(node.outputs[static_cast<size_t>(p)]);
    a.cols[p] = v.value(node.outputs[static_cast<size_t>(p)]).shape[0];
  }
  return a;
}

EmbeddingArgs embedding_args(const View& v, const Node& node, int p) {
  const Ref piece = node.inputs[static_cast<size_t>(1 + p)];
  const Value& table = v.value(piece);
  EmbeddingArgs a{};
  a.R = v.tokens(node.inputs[0]);
  a.C = table.shape[1];
  a.V = table.shape[0];
  a.dtype = table.dtype;
  a.ids = v.at<int32_t>(node.inputs[0]);
  a.table = v.at(piece);
  a.out = v.at(node.outputs[0]);
  a.first_id = v.first_row(piece);
  a.keep_others = p > 0;
  return a;
}

EmbeddingBackwardArgs embedding_grad_args(const View& v, const Node& node, int p) {
  const Ref piece = node.outputs[static_cast<size_t>(p)];
  const Value& dtable = v.value(piece);
  EmbeddingBackwardArgs a{};
  a.R = v.tokens(node.inputs[0]);
  a.C = dtable.shape[1];
  a.V = dtable.shape[0];
  a.dtype = v.value(node.inputs[0]).dtype;
  a.grad_dtype = dtable.dtype;
  a.ids = v.at<int32_t>(node.inputs[1]);
  a.padding_id = node.attr.padding_id;
  a.dout = v.at(node.inputs[0]);
  a.dtable = v.at(piece);
  a.first_id = v.first_row(piece);
  return a;
}

RmsNormArgs rmsnorm_args(const View& v, const Node& node) {
  const Value& x = v.value(node.inputs[0]);
  RmsNormArgs a{};
  a.R = v.tokens(node.inputs[0]);
  a.C = x.shape.back();
  a.dtype = x.dtype;
  a.eps = node.attr.eps;
  a.x = v.at(node.inputs[0]);
  a.weight = v.at(node.inputs[1]);
  a.residual = node.attr.has_residual ? v.at(node.inputs[2]) : nullptr;
  a.sum = v.at(node.outputs[0]);
  a.y = v.at(node.outputs[1]);
  a.rstd = v.at<float>(node.outputs[2]);
  return a;
}

RmsNormArgs rmsnorm_apply_args(const View& v, const Node& node) {
  const Value& x = v.value(node.inputs[0]);
  RmsNormArgs a{};
  a.R = v.tokens(node.inputs[0]);
  a.C = x.shape.back();
  a.dtype = x.dtype;
  a.eps = node.attr.eps;
  a.x = v.at(node.inputs[0]);
  a.weight = v.at(node.inputs[1]);
  a.y = v.at(node.outputs[0]);
  a.rstd = v.at<float>(node.inputs[2]);
  a.reuse_rstd = true;
  return a;
}

RmsNormBackwardArgs rmsnorm_grad_args(const View& v, const Node& node) {
  const Value& s = v.value(node.inputs[1]);
  RmsNormBackwardArgs a{};
  a.R = v.tokens(node.inputs[1]);
  a.C = s.shape.back();
  a.dtype = s.dtype;
  a.dy = v.at(node.inputs[0]);
  a.s = v.at(node.inputs[1]);
  a.weight = v.at(node.inputs[2]);
  a.rstd = v.at<float>(node.inputs[3]);
  a.dsum = node.attr.has_dsum ? v.at(node.inputs[4]) : nullptr;
  a.dx = v.at(node.outputs[0]);
  a.dweight = v.at(node.outputs[1]);
  a.grad_dtype = node.outputs[1] ? v.value(node.outputs[1]).dtype : Dtype::kF32;
  return a;
}

RopeArgs rope_args(const View& v, const Node& node) {
  const Value& qkv = v.value(node.inputs[0]);
  RopeArgs a{};
  a.R = v.tokens(node.inputs[0]);
  a.T = qkv.shape[1];
  a.H = node.attr.heads;
  a.G = node.attr.kv_heads;
  a.D = node.attr.head_dim;
  a.dtype = qkv.dtype;
  a.qkv = v.at(node.outputs[0]);  // shares the input's memory
  a.cosine = v.at<float>(node.inputs[1]);
  a.sine = v.at<float>(node.inputs[2]);
  a.positions = node.inputs.size() > 3 ? v.at<int32_t>(node.inputs[3]) : nullptr;
  a.inverse = node.op == Op::kRopeInverse;
  return a;
}

AttentionArgs attention_args(const View& v, const Node& node) {
  const Value& qkv = v.value(node.inputs[0]);
  AttentionArgs a{};
  a.B = qkv.shape[0];
  a.T = qkv.shape[1];
  a.H = node.attr.heads;
  a.G = node.attr.kv_heads;
  a.D = node.attr.head_dim;
  a.dtype = qkv.dtype;
  a.scale = node.attr.scale;
  a.qkv = v.at(node.inputs[0]);
  a.lengths = v.at<int32_t>(node.inputs[1]);
  a.out = v.at(node.outputs[0]);
  a.lse = v.at<float>(node.outputs[1]);
  a.positions = attention_positions(v, node, 2);
  a.padding_attends = node.attr.padding_attends;
  a.dropout = attention_dropout(v, node);
  a.longest = node.attr.longest;
  return a;
}

AttentionBackwardArgs attention_grad_args(const View& v, const Node& node) {
  const Value& qkv = v.value(node.inputs[0]);
  AttentionBackwardArgs a{};
  a.B = qkv.shape[0];
  a.T = qkv.shape[1];
  a.H = node.attr.heads;
  a.G = node.attr.kv_heads;
  a.D = node.attr.head_dim;
  a.dtype = qkv.dtype;
  a.scale = node.attr.scale;
  a.qkv = v.at(node.inputs[0]);
  a.lengths = v.at<int32_t>(node.inputs[1]);
  a.out = v.at(node.inputs[2]);
  a.dout = v.at(node.inputs[3]);
  a.lse = v.at<float>(node.inputs[4]);
  a.dqkv = v.at(node.outputs[0]);
  a.positions = attention_positions(v, node, 5);
  a.padding_attends = node.attr.padding_attends;
  a.dropout = attention_dropout(v, node);
  a.longest = node.attr.longest;
  return a;
}

CachedAttentionArgs cached_attention_args(const View& v, const Node& node) {
  const Value& qkv = v.value(node.inputs[0]);
  CachedAttentionArgs a{};
  a.B = qkv.shape[0];
  a.T = qkv.shape[1];
  a.H = node.attr.heads;
  a.G = node.attr.kv_heads;
  a.D = node.attr.head_dim;
  a.max_positions = v.value(node.inputs[3]).shape[1];
  a.dtype = qkv.dtype;
  a.scale = node.attr.scale;
  a.qkv = v.at(node.inputs[0]);
  a.starts = v.at<int32_t>(node.inputs[1]);
  a.lengths = v.at<int32_t>(node.inputs[2]);
  a.k_cache = v.at(node.inputs[3]);
  a.v_cache = v.at(node.inputs[4]);
  a.out = v.at(node.outputs[0]);
  return a;
}

SwigluArgs swiglu_args(const View& v, const Node& node) {
  const Value& h = v.value(node.outputs[0]);
  return {v.tokens(node.outputs[0]), h.shape.back(), h.dtype, v.at(node.inputs[0]),
          v.at(node.outputs[0])};
}

SwigluBackwardArgs swiglu_grad_args(const View& v, const Node& node) {
  const Value& dh = v.value(node.inputs[0]);
  return {v.tokens(node.inputs[0]),
          dh.shape.back(),
          dh.dtype,
          v.at(node.inputs[0]),
          v.at(node.inputs[1]),
          v.at(node.outputs[0]),
          node.outputs.size() > 1 ? v.at(node.outputs[1]) : nullptr};
}

AddArgs add_args(const View& v, const Node& node) {
  const Value& out = v.value(node.outputs[0]);
  return {num_elements(out.shape), out.dtype, v.at(node.inputs[0]), v.at(node.inputs[1]),
          v.at(node.outputs[0])};
}

SquaresArgs squares_args(const View& v, const Node& node) {
  const Value& x = v.value(node.inputs[0]);
  return {num_elements(x.shape), x.dtype, v.at(node.inputs[0]), v.at<double>(node.outputs[0])};
}

AdamwArgs adamw_args(const View& v, const Node& node) {
  const Value& p = v.value(node.inputs[0]);
  AdamwArgs a{};
  a.n = num_elements(p.shape);
  a.dtype = p.dtype;
  a.grad_dtype = v.value(node.inputs[1]).dtype;
  a.state_dtype = v.value(node.inputs[3]).dtype;
  a.p = v.at(node.inputs[0]);
  a.grad = v.at(node.inputs[1]);
  a.m = v.at(node.inputs[3]);
  a.v = v.at(node.inputs[4]);
  a.master = node.inputs.size() > 5 ? v.at<float>(node.inputs[5]) : nullptr;
  return a;
}

}  // namespace weft
