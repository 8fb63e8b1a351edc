// graph/ops/qk_norm.cpp: heads are independent; the weights' gradients are sums over all of them.
#include "graph/ops/qk_norm.h"

#include "base/error.h"
#include "graph/gradients.h"

namespace weft {
namespace {

using Inputs = std::vector<Placement>;

std::vector<Shape> qk_norm_shapes(const Graph& graph, const Node& node) {
  const Shape& x = graph[node.inputs[0]].shape;
  const HeadShape& h = node.as<QkNormAttr>().heads;
  return {x, {x[0], x[1], h.heads + h.kv_heads}};
}

std::vector<Shape> qk_norm_grad_shapes(const Graph& graph, const Node& node) {
  std::vector<Shape> made(1 + 2 * static_cast<size_t>(node.as<QkNormAttr>().leaves));
  made[0] = graph[node.inputs[0]].shape;
  return made;
}

// Weights are copies on every rank where heads are cut: pieces of one unit.
Placement weight_placement(const Placement& p) { return p.is_cut(2) ? cut(0) : whole(); }

void check_weights(const Node& node, const Inputs& in, size_t begin, const Placement& p) {
  if (!all_are(in, begin, 2, weight_placement(p))) refuse_placement(node, in);
}

Inputs place_qk_norm(const Node& node, const Inputs& in) {
  const Placement p = place_along(node, in, {0});
  check_weights(node, in, 1, p);
  return {p, p};
}

Inputs place_qk_norm_grad(const Node& node, const Inputs& in) {
  const Placement p = place_along(node, in, {0, 1, 4});
  check_weights(node, in, 2, p);
  Inputs out(node.outputs.size(), summed_over_rows(p, weight_placement(p)));
  out[0] = p;
  return out;
}

// The node of this rank, without outputs. A weight is one value, however many leaves read it.
Node on_rank(Localizer* l, const Node& node) {
  Node made = Localizer::copy(node);
  QkNormAttr& attr = made.edit<QkNormAttr>();
  attr.heads = local_heads(l, node.inputs[0], attr.heads);
  for (Ref r : node.inputs) {
    const bool is_parameter = l->logical()[r].kind == ValueKind::kParameter;
    made.inputs.push_back(is_parameter ? l->pieces(r).front() : l->one(r));
  }
  return made;
}

void localize_qk_norm(Localizer* l, const Node& node) {
  Node made = on_rank(l, node);
  const std::vector<Shape> all = qk_norm_shapes(l->local(), made);
  for (size_t k = 0; k < all.size(); ++k)
    made.outputs.push_back(l->activation(node.outputs[k], all[k]));
  l->push(std::move(made));
}

// Exact mode: an addend per leaf of this rank.
void localize_qk_norm_grad(Localizer* l, const Node& node) {
  Node made = on_rank(l, node);
  const bool is_cut = l->placement(node.inputs[0]).is_cut(2);
  const int leaves = is_cut && l->mesh().is_exact ? l->mesh().pieces_per_rank() : 1;
  made.edit<QkNormAttr>().leaves = leaves;
  made.outputs = {l->activation(node.outputs[0], l->local()[made.inputs[0]].shape)};
  for (const size_t k : {size_t{1}, size_t{2}}) {
    const Ref logical = node.outputs[k];
    std::vector<Ref> written(static_cast<size_t>(leaves));  // none where frozen
    if (logical && l->is_copied(logical)) {
      ensure(node.run.first_writer, "the addends of a gradient with two writers");
      written = l->addends_of_copies(l->one(logical));
    } else if (logical) {
      written = {l->one(logical)};
    }
    made.outputs.insert(made.outputs.end(), written.begin(), written.end());
  }
  l->push(std::move(made));
}

void qk_norm_gradient(Gradients* g, const Node& node) {
  const Ref x = node.inputs[0], q_weight = node.inputs[1], k_weight = node.inputs[2];
  const Ref dy = g->of(node.outputs[0]);
  if (!dy || (!g->needs(x) && !g->needs(q_weight) && !g->needs(k_weight))) return;
  const Ref dx = g->like(x);
  const auto dq = g->of_parameter_if_needed(q_weight), dk = g->of_parameter_if_needed(k_weight);
  ensure(!dq.value || !dk.value || dq.is_first == dk.is_first,
         "one of the two weights has another writer before this one");
  const bool first = dq.value ? dq.is_first : dk.is_first;
  g->add(&kQkNormGradOp, node, {dy, x, q_weight, k_weight, node.outputs[1]},
         {dx, dq.value, dk.value}, node.attr)
      .run.first_writer = first;
  g->flow(x, dx, node);
}

// Where no gradient reads qkv later, as in generation.
std::vector<InPlace> qk_norm_in_place(const Node&) { return {{0, {0}}}; }
std::vector<InPlace> qk_norm_grad_in_place(const Node&) { return {{0, {0, 1}}}; }

}  // namespace

const OpRule kQkNormOp = {
    .name = "qk_norm",
    .shapes = qk_norm_shapes,
    .place = place_qk_norm,
    .localize = localize_qk_norm,
    .gradient = qk_norm_gradient,
    .repeat = not_repeated,
    .in_place = qk_norm_in_place,
    .flops = no_flops,
};

const OpRule kQkNormGradOp = {
    .name = "qk_norm_grad",
    .traits = {.writes_gradients = true},
    .shapes = qk_norm_grad_shapes,
    .place = place_qk_norm_grad,
    .localize = localize_qk_norm_grad,
    .gradient = not_differentiable,
    .repeat = not_repeated,
    .in_place = qk_norm_grad_in_place,
    .flops = no_flops,
};

Ref ops::qk_norm(Builder& g, Ref qkv, Ref q_weight, Ref k_weight, HeadShape h, float eps,
                 int weight_offset) {
  const Shape s = g.shape(qkv);
  check_operands(s.size() == 3 && s[2] == h.columns(), &kQkNormOp,
                 fmt::format("wanted {} columns of q, k and v, got {}", h.columns(), to_string(s)));
  for (Ref weight : {q_weight, k_weight}) {
    check_operands(g.shape(weight) == Shape{h.head_dim}, &kQkNormOp,
                   fmt::format("wanted a weight of {} elements, got {}", h.head_dim,
                               to_string(g.shape(weight))));
  }
  check_operands(q_weight != k_weight, &kQkNormOp, "q and k need a weight each");
  check_operands(weight_offset == 0 || weight_offset == 1, &kQkNormOp,
                 fmt::format("wanted a weight offset of 0 or 1, got {}", weight_offset));
  const Ref out = g.activation("qkv", s, g.compute());
  const Ref rstd = g.activation("rstd", {s[0], s[1], h.heads + h.kv_heads}, Dtype::kF32);
  g.add(&kQkNormOp, {qkv, q_weight, k_weight}, {out, rstd}, QkNormAttr{h, eps, weight_offset, 1});
  return out;
}

}  // namespace weft
