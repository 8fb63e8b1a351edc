// graph/ops/attention.cpp: heads are independent, so a rank computes some of them.
#include "graph/ops/attention.h"

#include <cmath>

#include "base/error.h"
#include "graph/gradients.h"
#include "graph/ops/linear.h"

namespace weft {
namespace {

using Inputs = std::vector<Placement>;

std::vector<Shape> attention_shapes(const Graph& graph, const Node& node) {
  const Shape& q = graph[node.inputs[0]].shape;
  const HeadShape& h = node.as<AttentionAttr>().heads;
  return {{q[0], q[1], h.heads * h.head_dim}, {q[0], h.heads, q[1]}};
}

std::vector<Shape> attention_grad_shapes(const Graph& graph, const Node& node) {
  const AttentionAttr& attr = node.as<AttentionAttr>();
  std::vector<Shape> all;
  for (size_t i = 0; i < num_values(attr.layout); ++i) all.push_back(graph[node.inputs[i]].shape);
  if (attr.bias == ScoreBias::kRelative) all.emplace_back();
  return all;
}

// q, k and v in the same way, and what a gradient reads with them.
Placement place_values(const Node& node, const Inputs& in, bool is_gradient) {
  const AttentionAttr& attr = node.as<AttentionAttr>();
  const size_t n = num_values(attr.layout);
  const Placement p = place_along(node, in, {0});
  bool ok = all_are(in, 0, n, p);
  if (is_gradient) ok = ok && all_are(in, n + 1, 2, p);  // out, dout
  if (attr.bias == ScoreBias::kRelative) {
    const size_t table = in.size() - (attr.dropout > 0 ? 2 : 1);
    ok = ok && in[table] == table_placement(p);
  }
  if (!ok) refuse_placement(node, in);
  return p;
}

Inputs place_attention(const Node& node, const Inputs& in) {
  const Placement p = place_values(node, in, false);
  return {p, p.is_cut(2) ? cut(1) : p};
}

Inputs place_attention_grad(const Node& node, const Inputs& in) {
  const AttentionAttr& attr = node.as<AttentionAttr>();
  const Placement p = place_values(node, in, true);
  Inputs out(num_values(attr.layout), p);
  if (attr.bias == ScoreBias::kRelative) out.push_back(summed_over_rows(p, table_placement(p)));
  return out;
}

void localize_attention(Localizer* l, const Node& node) {
  AttentionAttr attr = node.as<AttentionAttr>();
  attr.heads = heads_of_rank(l, node.op, attr.layout, attr.heads, attention_inputs(node).values);
  if (l->placement(node.inputs[0]).is_cut(2)) attr.first_head = l->mesh().rank * attr.heads.heads;
  l->push_plain(node, attr);
}

void attention_gradient(Gradients* g, const Node& node) {
  const AttentionInputs in = attention_inputs(node);
  const Ref dy = g->of(node.outputs[0]);
  bool needed = in.table && g->needs(in.table);
  for (Ref v : in.values) needed = needed || g->needs(v);
  if (!dy || !needed) return;
  const size_t n = in.values.size() + 1;  // with the lengths
  std::vector<Ref> inputs(node.inputs.begin(), node.inputs.begin() + static_cast<int64_t>(n));
  for (Ref r : {node.outputs[0], dy, node.outputs[1]}) inputs.push_back(r);
  inputs.insert(inputs.end(), node.inputs.begin() + static_cast<int64_t>(n), node.inputs.end());
  std::vector<Ref> outputs;
  for (Ref v : in.values) outputs.push_back(g->like(v));
  bool first = true;
  if (in.table) {
    const auto dtable = g->of_parameter_if_needed(in.table);
    outputs.push_back(dtable.value);
    first = dtable.is_first;
  }
  g->add(&kAttentionGradOp, node, std::move(inputs), outputs, node.attr).run.first_writer = first;
  for (size_t i = 0; i < in.values.size(); ++i) g->flow(in.values[i], outputs[i], node);
}

// Causal: half of T x S is computed.
double attention_flops_of(const Graph& graph, const Node& node, double products) {
  const AttentionAttr& attr = node.as<AttentionAttr>();
  const Shape& q = graph[node.inputs[0]].shape;
  const int64_t S = graph[node.inputs[num_values(attr.layout) - 1]].shape[1];
  const double all =
      products * static_cast<double>(q[0] * q[1] * S * attr.heads.heads * attr.heads.head_dim);
  return attr.causal ? all : 2 * all;
}
double attention_flops(const Graph& graph, const Node& node) {
  return attention_flops_of(graph, node, 2);
}
double attention_grad_flops(const Graph& graph, const Node& node) {
  return attention_flops_of(graph, node, 5);
}

void check_stacked(const Localizer& l, Op op, QkvLayout layout, const HeadShape& h,
                   const std::vector<Ref>& values) {
  const int64_t q = h.heads * h.head_dim, kv = h.kv_heads * h.head_dim;
  std::vector<std::vector<int64_t>> wanted = {{q}, {kv}, {kv}};
  if (layout == QkvLayout::kPacked) wanted = {{q, kv, kv}};
  if (layout == QkvLayout::kInterleaved) wanted = {{q + 2 * kv}};
  if (layout == QkvLayout::kQAndKv) wanted = {{q}, {kv, kv}};
  for (size_t i = 0; i < values.size(); ++i) {
    check_operands(stacked_widths(l, values[i]) == wanted[i], op,
                   fmt::format("{} must be a product with {} stacked weights to be cut by heads",
                               l.logical()[values[i]].name, wanted[i].size()));
  }
}

}  // namespace

HeadShape heads_of_rank(Localizer* l, Op op, QkvLayout layout, const HeadShape& logical,
                        const std::vector<Ref>& values) {
  HeadShape h = logical;
  if (!l->placement(values[0]).is_cut(2)) return h;
  check_stacked(*l, op, layout, logical, values);
  if (layout == QkvLayout::kPacked) return local_heads(l, values[0], h);
  h.heads = logical.heads / l->mesh().tp;
  h.kv_heads = h.heads;
  if (layout == QkvLayout::kInterleaved) return h;
  const bool has_kv = values.size() > 1;
  check_operands(has_kv || logical.kv_heads == logical.heads, op,
                 "queries alone are cut where each head has its own key");
  if (!has_kv) return h;
  h.kv_heads =
      l->local_shape(values[1]).back() / h.head_dim / (layout == QkvLayout::kQAndKv ? 2 : 1);
  return h;
}

AttentionInputs attention_inputs(const Node& node) {
  const AttentionAttr& attr = node.as<AttentionAttr>();
  size_t at = 0;
  const auto next = [&](bool is_there) { return is_there ? node.inputs[at++] : Ref{}; };
  const bool is_gradient = node.op == &kAttentionGradOp;
  AttentionInputs in;
  for (size_t i = 0; i < num_values(attr.layout); ++i) in.values.push_back(next(true));
  in.lengths = next(true);
  for (Ref* r : {&in.out, &in.dout, &in.lse}) *r = next(is_gradient);
  in.source_lengths = attr.has_source ? next(true) : in.lengths;
  in.positions = next(attr.has_segments);
  in.source_positions = attr.has_source ? next(attr.has_segments) : in.positions;
  in.table = next(attr.bias == ScoreBias::kRelative);
  in.rows = next(attr.dropout > 0);
  return in;
}

const OpRule kAttentionOp = {
    .name = "attention",
    .traits = {.reads_one_piece = true},  // a relative table, cut by heads
    .shapes = attention_shapes,
    .place = place_attention,
    .localize = localize_attention,
    .gradient = attention_gradient,
    .repeat = not_repeated,
    .in_place = not_in_place,
    .flops = attention_flops,
};

const OpRule kAttentionGradOp = {
    .name = "attention_grad",
    .traits = {.writes_gradients = true, .reads_one_piece = true},  // of a relative table
    .shapes = attention_grad_shapes,
    .place = place_attention_grad,
    .localize = localize_attention,
    .gradient = not_differentiable,
    .repeat = not_repeated,
    .in_place = not_in_place,
    .flops = attention_grad_flops,
};

}  // namespace weft
