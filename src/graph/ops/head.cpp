// graph/ops/head.cpp: losses with their gradient in one node, over a vocabulary that may be cut.
#include "graph/ops/head.h"

#include "base/error.h"
#include "graph/gradients.h"
#include "graph/localizer.h"
#include "tensor/names.h"

namespace weft {
namespace {

using Inputs = std::vector<Placement>;

Shape tokens_of(const Graph& graph, const Node& node) {
  const Shape& x = graph[node.inputs[0]].shape;
  return {x[0], x[1]};
}

std::vector<Shape> head_shapes(const Graph& graph, const Node& node) {
  return {tokens_of(graph, node)};
}

std::vector<Shape> head_grad_shapes(const Graph& graph, const Node& node) {
  std::vector<Shape> made(node.outputs.size());  // of the weight's pieces: as they are
  made[0] = tokens_of(graph, node);
  made[1] = graph[node.inputs[0]].shape;
  return made;
}

std::vector<Shape> logits_shapes(const Graph& graph, const Node& node) {
  int64_t columns = 0;
  for (int p = 0; p < node.as<HeadAttr>().parts; ++p)
    columns += graph[node.inputs[1 + static_cast<size_t>(p)]].shape[0];
  return {{graph[node.inputs[0]].shape[0], columns}};
}

// losses, dx, dweight
Inputs place_three(const Node& node, const Inputs& in) {
  if (rest_whole(in, 1) && in[0].is_whole()) return {whole(), whole(), whole()};
  if (in[0].is_cut(0) && in[1].is_whole() && in[2].is_cut(0)) return {cut(0), cut(0), partial()};
  // The ranks exchange maxima and sums chunk by chunk: losses are complete on every rank.
  if (in[0].is_whole() && in[1].is_cut(0)) return {whole(), partial(), cut(0)};
  refuse_placement(node, in);
}

Inputs place_head(const Node& node, const Inputs& in) {
  Inputs out = place_three(node, in);
  out.resize(node.outputs.size());
  return out;
}

Inputs place_logits(const Node& node, const Inputs& in) {
  if (!in[0].is_whole() || !in[2].is_whole()) refuse_placement(node, in);
  if (in[1].is_whole()) return {whole()};
  if (in[1].is_cut(0)) return {cut(1)};
  refuse_placement(node, in);
}

// Without outputs.
Node with_pieces(Localizer* l, const Node& node) {
  Node made = Localizer::copy(node);
  made.inputs = {l->one(node.inputs[0])};
  l->add_pieces(node, 1, 1, &made);
  HeadAttr& attr = made.edit<HeadAttr>();
  attr.parts = static_cast<int>(made.inputs.size()) - 1;
  if (l->mesh().is_exact) attr.leaves = attr.parts;
  made.inputs.push_back(l->one(node.inputs[2]));
  return made;
}

Node with_losses(Localizer* l, const Node& node) {
  Node made = with_pieces(l, node);
  made.outputs = {l->activation(node.outputs[0], l->logical()[node.outputs[0]].shape)};
  return made;
}

void localize_head(Localizer* l, const Node& node) { l->push(with_losses(l, node)); }

// A rank has the logits of its ids; who reads them joins the ranks'.
void localize_logits(Localizer* l, const Node& node) {
  Node made = with_pieces(l, node);
  made.outputs = {l->one(node.outputs[0])};
  l->local()[made.outputs[0]].shape = logits_shapes(l->local(), made)[0];
  l->push(std::move(made));
}

void localize_head_grad(Localizer* l, const Node& node) {
  Node made = with_losses(l, node);
  const Ref dx = node.outputs[1], dweight = node.outputs[2];
  made.outputs.push_back(dx ? l->addend(dx, l->addend_dtype(dx)) : Ref{});
  for (Ref piece : dweight ? l->pieces(dweight) : std::vector<Ref>{Ref{}})
    made.outputs.push_back(piece);
  l->push(std::move(made));
}

// Replaces the forward node.
void head_gradient(Gradients* g, const Node& node) {
  const Ref x = node.inputs[0], weight = node.inputs[1];
  const Ref dx = g->needs(x) ? g->like(x) : Ref{};
  const auto [dweight, first] = g->of_parameter_if_needed(weight);
  g->add(&kHeadLossGradOp, node, node.inputs, {node.outputs[0], dx, dweight}, node.attr)
      .run.first_writer = first;
  if (dx) g->flow(x, dx, node);
}

double head_flops_of(const Graph& graph, const Node& node, double products) {
  double weights = 0;
  for (int p = 0; p < node.as<HeadAttr>().parts; ++p)
    weights += elements_of(graph, node.inputs[1 + static_cast<size_t>(p)]);
  return 2 * products * rows_of(graph, node.inputs[0]) * weights;
}
double head_flops(const Graph& graph, const Node& node) { return head_flops_of(graph, node, 1); }
double head_grad_flops(const Graph& graph, const Node& node) {
  return head_flops_of(graph, node, 1 + (node.outputs[1] ? 1 : 0) + (node.outputs[2] ? 1 : 0));
}

void check_weight(const Builder& g, Op op, Ref x, Ref weight) {
  const Shape& s = g.shape(x);
  check_operands(g.shape(weight).size() == 2 && g.shape(weight)[1] == s.back(), op,
                 fmt::format("x {} needs a head of {} columns, got {}", to_string(s), s.back(),
                             to_string(g.shape(weight))));
}

}  // namespace

const OpRule kHeadLossOp = {
    .name = "head_loss",
    .traits = {.is_loss = true},
    .shapes = head_shapes,
    .place = place_head,
    .localize = localize_head,
    .gradient = head_gradient,
    .repeat = not_repeated,
    .in_place = not_in_place,
    .flops = head_flops,
};

const OpRule kHeadLossGradOp = {
    .name = "head_loss_grad",
    .traits = {.is_loss = true, .begins_backward = true, .writes_gradients = true},
    .shapes = head_grad_shapes,
    .place = place_head,
    .localize = localize_head_grad,
    .gradient = not_differentiable,
    .repeat = not_repeated,
    .in_place = not_in_place,
    .flops = head_grad_flops,
};

const OpRule kHeadLogitsOp = {
    .name = "head_logits",
    .shapes = logits_shapes,
    .place = place_logits,
    .localize = localize_logits,
    .gradient = not_differentiable,
    .repeat = not_repeated,
    .in_place = not_in_place,
    .flops = head_flops,
};

Ref ops::head_loss(Builder& g, Ref x, Ref weight, Ref targets, int64_t chunk_rows) {
  const Shape s = g.shape(x);
  check_weight(g, &kHeadLossOp, x, weight);
  check_operands(g.shape(targets) == Shape{s[0], s[1]}, &kHeadLossOp,
                 fmt::format("x {} needs one target per token, got {}", to_string(s),
                             to_string(g.shape(targets))));
  const Ref losses = g.activation("losses", {s[0], s[1]}, Dtype::kF32);
  g.add(&kHeadLossOp, {x, weight, targets}, {losses}, HeadAttr{.chunk_rows = chunk_rows});
  return losses;
}

Ref ops::head_logits(Builder& g, Ref x, Ref weight, Ref last) {
  check_weight(g, &kHeadLogitsOp, x, weight);
  const Ref logits = g.result(names::kLogits, {g.shape(x)[0], g.shape(weight)[0]}, Dtype::kF32);
  g.add(&kHeadLogitsOp, {x, weight, last}, {logits}, HeadAttr{});
  return logits;
}

}  // namespace weft
