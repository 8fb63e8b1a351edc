// graph/ops/attention.cpp: heads are independent, so a rank takes some of them.
#include "graph/ops/attention.h"

#include <cmath>

#include "base/error.h"
#include "graph/gradients.h"

namespace weft {
namespace {

using Inputs = std::vector<Placement>;

constexpr int64_t kMostDropoutSites = 1 << 16;  // kernel/dropout.h has 16 bits for each

std::vector<Shape> shapes(const Graph& graph, const Node& node) {
  const Shape& qkv = graph[node.inputs[0]].shape;
  const HeadShape& h = node.as<AttentionAttr>().heads;
  return {{qkv[0], qkv[1], h.heads * h.head_dim}, {qkv[0], h.heads, qkv[1]}};
}

std::vector<Shape> grad_shapes(const Graph& graph, const Node& node) {
  return {graph[node.inputs[0]].shape};
}

Inputs place(const Node& node, const Inputs& in) {
  const Placement p = place_along(node, in, {0});
  return {p, p.is_cut(2) ? cut(1) : p};
}

Inputs place_grad(const Node& node, const Inputs& in) { return {place_along(node, in, {0, 2, 3})}; }

void localize(Localizer* l, const Node& node) {
  AttentionAttr attr = node.as<AttentionAttr>();
  const Ref qkv = node.inputs[0];
  attr.heads = local_heads(l, qkv, attr.heads);
  if (l->placement(qkv).is_cut(2)) attr.first_head = l->mesh().rank * attr.heads.heads;
  l->push_plain(node, attr);
}

void gradient(Gradients* g, const Node& node) {
  const Ref x = node.inputs[0], dy = g->of(node.outputs[0]);
  if (!dy || !g->needs(x)) return;
  const Ref dx = g->like(x);
  std::vector<Ref> inputs = {x, node.inputs[1], node.outputs[0], dy, node.outputs[1]};
  // Positions of packed rows, the rows' numbers of dropout.
  inputs.insert(inputs.end(), node.inputs.begin() + 2, node.inputs.end());
  g->add(&kAttentionGradOp, node, std::move(inputs), {dx}, node.attr);
  g->flow(x, dx, node);
}

// Half of T x T is computed.
double flops_of(const Graph& graph, const Node& node, double products) {
  const Shape& qkv = graph[node.inputs[0]].shape;
  const HeadShape& h = node.as<AttentionAttr>().heads;
  return products * static_cast<double>(qkv[0] * qkv[1] * qkv[1] * h.heads * h.head_dim);
}
double flops(const Graph& graph, const Node& node) { return flops_of(graph, node, 2); }
double grad_flops(const Graph& graph, const Node& node) { return flops_of(graph, node, 5); }

void check(const Builder& g, Ref qkv, Ref lengths, Ref positions, HeadShape h,
           bool padding_attends) {
  const Op op = &kAttentionOp;
  const Shape& s = g.shape(qkv);
  check_operands(s.size() == 3 && s[2] == h.columns(), op,
                 fmt::format("wanted (B, T, {}), got {}", h.columns(), to_string(s)));
  check_operands(h.heads % h.kv_heads == 0, op,
                 fmt::format("{} key/value heads do not divide {} heads", h.kv_heads, h.heads));
  check_operands(g.shape(lengths) == Shape{s[0]}, op,
                 fmt::format("qkv {} wants one length per row, got {}", to_string(s),
                             to_string(g.shape(lengths))));
  check_operands(!positions || g.shape(positions) == Shape{s[0], s[1]}, op,
                 fmt::format("qkv {} wants one position per token, got {}", to_string(s),
                             positions ? to_string(g.shape(positions)) : "none"));
  check_operands(!positions || !padding_attends, op,
                 "padding of packed rows belongs to no segment");
}

void check_dropout(const Builder& g, int64_t batch, HeadShape h, const DropoutRule& dropout) {
  const Op op = &kAttentionOp;
  check_operands(dropout.rate >= 0 && dropout.rate < 1, op,
                 fmt::format("wanted a dropout in [0, 1), got {}", dropout.rate));
  if (dropout.rate == 0) return;
  check_operands(dropout.rows && g.shape(dropout.rows) == Shape{batch, 2}, op,
                 "dropout wants an epoch and a number of every row");
  check_operands(dropout.site < kMostDropoutSites && h.heads <= kMostDropoutSites, op,
                 "dropout is drawn for up to 65536 layers and heads");
}

}  // namespace

const OpRule kAttentionOp = {
    .name = "attention",
    .shapes = shapes,
    .place = place,
    .localize = localize,
    .gradient = gradient,
    .repeat = not_repeated,
    .in_place = not_in_place,
    .flops = flops,
};

const OpRule kAttentionGradOp = {
    .name = "attention_grad",
    .shapes = grad_shapes,
    .place = place_grad,
    .localize = localize,
    .gradient = not_differentiable,
    .repeat = not_repeated,
    .in_place = not_in_place,
    .flops = grad_flops,
};

Ref ops::attention(Builder& g, Ref qkv, Ref lengths, Ref positions, HeadShape h,
                   bool padding_attends, const DropoutRule& dropout) {
  check(g, qkv, lengths, positions, h, padding_attends);
  const Shape s = g.shape(qkv);
  check_dropout(g, s[0], h, dropout);
  const Ref out = g.activation("attended", {s[0], s[1], h.heads * h.head_dim}, g.compute());
  const Ref lse = g.activation("lse", {s[0], h.heads, s[1]}, Dtype::kF32);
  std::vector<Ref> inputs = {qkv, lengths};
  if (positions) inputs.push_back(positions);
  if (dropout.rate != 0) inputs.push_back(dropout.rows);
  g.add(&kAttentionOp, std::move(inputs), {out, lse},
        AttentionAttr{.heads = h,
                      .scale = 1.0f / std::sqrt(static_cast<float>(h.head_dim)),
                      .padding_attends = padding_attends,
                      .dropout = dropout.rate,
                      .dropout_seed = dropout.seed,
                      .dropout_site = dropout.site});
  return out;
}

}  // namespace weft
