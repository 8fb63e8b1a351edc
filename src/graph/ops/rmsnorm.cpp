// graph/ops/rmsnorm.cpp: rows are whole on every rank; y is cheap to recompute.
#include "graph/ops/rmsnorm.h"

#include "base/error.h"
#include "graph/gradients.h"
#include "graph/localizer.h"

namespace weft {
namespace {

using Inputs = std::vector<Placement>;

std::vector<Shape> rmsnorm_shapes(const Graph& graph, const Node& node) {
  const Shape& x = graph[node.inputs[0]].shape;
  return {x, x, {x[0], x[1]}};
}

std::vector<Shape> rmsnorm_apply_shapes(const Graph& graph, const Node& node) {
  return {graph[node.inputs[0]].shape};
}

std::vector<Shape> rmsnorm_grad_shapes(const Graph& graph, const Node& node) {
  return {graph[node.inputs[0]].shape, {}};
}

Inputs place_rmsnorm(const Node& node, const Inputs& in) {
  const bool residual = node.as<RmsNormAttr>().has_residual;
  return Inputs(3, residual ? place_rows(node, in, {0, 2}) : place_rows(node, in, {0}));
}

Inputs place_rmsnorm_apply(const Node& node, const Inputs& in) {
  return {place_rows(node, in, {0, 2})};
}

Inputs place_rmsnorm_grad(const Node& node, const Inputs& in) {
  const Placement p = node.as<RmsNormAttr>().has_dsum ? place_rows(node, in, {0, 1, 3, 4})
                                                      : place_rows(node, in, {0, 1, 3});
  return {p, summed_over_rows(p, whole())};
}

void rmsnorm_gradient(Gradients* g, const Node& node) {
  const Ref x = node.inputs[0], weight = node.inputs[1];
  const Ref sum = node.outputs[0] ? node.outputs[0] : x;
  const Ref dy = g->of(node.outputs[1]), dsum = g->of(sum);
  if (!dy) {  // only the sum is used
    if (dsum && node.outputs[0]) {
      g->flow(x, dsum, node);
      g->flow(node.inputs[2], dsum, node);
    }
    return;
  }
  if (!g->needs(x) && !g->needs(weight)) return;
  const Ref ds = g->like(sum);
  const auto [dweight, first] = g->of_parameter_if_needed(weight);
  std::vector<Ref> inputs = {dy, sum, weight, node.outputs[2]};
  if (dsum) inputs.push_back(dsum);
  RmsNormAttr attr = node.as<RmsNormAttr>();
  attr.has_dsum = static_cast<bool>(dsum);
  g->add(&kRmsNormGradOp, node, std::move(inputs), {ds, dweight}, attr).run.first_writer = first;
  // Without a residual the sum is x itself: the gradient of x so far is included here.
  if (!node.outputs[0]) {
    if (g->needs(x)) g->replace(x, ds);
    return;
  }
  g->flow(x, ds, node);
  g->flow(node.inputs[2], ds, node);
}

bool repeat_rmsnorm(const Node& forward, Ref value, Ref again, Node* made) {
  if (forward.outputs[1] != value) return false;
  const Ref sum = forward.outputs[0] ? forward.outputs[0] : forward.inputs[0];
  *made = {&kRmsNormApplyOp,
           {sum, forward.inputs[1], forward.outputs[2]},
           {again},
           forward.attr,
           forward.layer};
  return true;
}

std::vector<InPlace> rmsnorm_grad_in_place(const Node&) { return {{0, {0, 4}}}; }

}  // namespace

const OpRule kRmsNormOp = {
    .name = "rmsnorm",
    .shapes = rmsnorm_shapes,
    .place = place_rmsnorm,
    .localize = localize_plain,
    .gradient = rmsnorm_gradient,
    .repeat = repeat_rmsnorm,
    .in_place = not_in_place,
    .flops = no_flops,
};

const OpRule kRmsNormApplyOp = {
    .name = "rmsnorm_apply",
    .shapes = rmsnorm_apply_shapes,
    .place = place_rmsnorm_apply,
    .localize = localize_plain,
    .gradient = not_differentiable,
    .repeat = not_repeated,
    .in_place = not_in_place,
    .flops = no_flops,
};

const OpRule kRmsNormGradOp = {
    .name = "rmsnorm_grad",
    .traits = {.writes_gradients = true},
    .shapes = rmsnorm_grad_shapes,
    .place = place_rmsnorm_grad,
    .localize = localize_plain,
    .gradient = not_differentiable,
    .repeat = not_repeated,
    .in_place = rmsnorm_grad_in_place,
    .flops = no_flops,
};

ops::Normed ops::rmsnorm(Builder& g, Ref x, Ref residual, Ref weight, float eps,
                         int weight_offset) {
  const Shape s = g.shape(x);
  check_operands(g.shape(weight) == Shape{s.back()}, &kRmsNormOp,
                 fmt::format("x {} needs a weight of {} elements, got {}", to_string(s), s.back(),
                             to_string(g.shape(weight))));
  check_operands(!residual || g.shape(residual) == s, &kRmsNormOp,
                 fmt::format("x {} needs a residual of its shape, got {}", to_string(s),
                             residual ? to_string(g.shape(residual)) : "none"));
  check_operands(weight_offset == 0 || weight_offset == 1, &kRmsNormOp,
                 fmt::format("wanted a weight offset of 0 or 1, got {}", weight_offset));
  const Ref sum = residual ? g.activation("residual", s, g.compute()) : x;
  const Ref y = g.activation("normed", s, g.compute());
  const Ref rstd = g.activation("rstd", {s[0], s[1]}, Dtype::kF32);
  std::vector<Ref> inputs = {x, weight};
  if (residual) inputs.push_back(residual);
  g.add(
      &kRmsNormOp, std::move(inputs), {residual ? sum : Ref{}, y, rstd},
      RmsNormAttr{
          .eps = eps, .has_residual = static_cast<bool>(residual), .weight_offset = weight_offset});
  return {sum, y};
}

}  // namespace weft
