// graph/ops/layernorm.cpp: rows are whole on every rank; y is cheap to recompute.
#include "graph/ops/layernorm.h"

#include "base/error.h"
#include "graph/gradients.h"
#include "graph/localizer.h"

namespace weft {
namespace {

using Inputs = std::vector<Placement>;

size_t residual_input(const LayerNormAttr& attr) { return attr.has_bias ? 3 : 2; }

std::vector<Shape> layernorm_shapes(const Graph& graph, const Node& node) {
  const Shape& x = graph[node.inputs[0]].shape;
  return {x, x, {x[0], x[1]}, {x[0], x[1]}};
}

std::vector<Shape> layernorm_apply_shapes(const Graph& graph, const Node& node) {
  return {graph[node.inputs[0]].shape};
}

std::vector<Shape> layernorm_grad_shapes(const Graph& graph, const Node& node) {
  std::vector<Shape> made(node.outputs.size());  // empty: that of the parameter
  made[0] = graph[node.inputs[0]].shape;
  return made;
}

Inputs place_layernorm(const Node& node, const Inputs& in) {
  const auto& attr = node.as<LayerNormAttr>();
  return Inputs(4, attr.has_residual ? place_rows(node, in, {0, residual_input(attr)})
                                     : place_rows(node, in, {0}));
}

Inputs place_layernorm_apply(const Node& node, const Inputs& in) {
  return {place_rows(node, in, {0, 2, 3})};
}

Inputs place_layernorm_grad(const Node& node, const Inputs& in) {
  const Placement p = node.as<LayerNormAttr>().has_dsum ? place_rows(node, in, {0, 1, 3, 4, 5})
                                                        : place_rows(node, in, {0, 1, 3, 4});
  Inputs made(node.outputs.size(), summed_over_rows(p, whole()));
  made[0] = p;
  return made;
}

// The gradient node; its output is the gradient of the sum.
Ref norm_gradient(Gradients* g, const Node& node, Ref sum, Ref dy) {
  LayerNormAttr attr = node.as<LayerNormAttr>();
  const Ref dsum = g->of(sum);
  const auto dweight = g->of_parameter_if_needed(node.inputs[1]);
  const auto dbias =
      attr.has_bias ? g->of_parameter_if_needed(node.inputs[2]) : Gradients::ParameterGradient{};
  attr.has_dsum = static_cast<bool>(dsum);
  attr.has_dweight = static_cast<bool>(dweight.value);
  attr.has_dbias = static_cast<bool>(dbias.value);
  // A node has one flag for all its outputs.
  ensure(!attr.has_dweight || !attr.has_dbias || dweight.is_first == dbias.is_first,
         "[layernorm] weight and bias are shared by different norms");
  std::vector<Ref> inputs = {dy, sum, node.inputs[1], node.outputs[2], node.outputs[3]};
  std::vector<Ref> outputs = {g->like(sum)};
  const Ref ds = outputs[0];
  if (attr.has_dsum) inputs.push_back(dsum);
  if (attr.has_dweight) outputs.push_back(dweight.value);
  if (attr.has_dbias) outputs.push_back(dbias.value);
  g->add(&kLayerNormGradOp, node, std::move(inputs), std::move(outputs), attr).run.first_writer =
      attr.has_dweight ? dweight.is_first : dbias.is_first;
  return ds;
}

void layernorm_gradient(Gradients* g, const Node& node) {
  const Ref x = node.inputs[0], dy = g->of(node.outputs[1]);
  const Ref sum = node.outputs[0] ? node.outputs[0] : x;
  if (!g->needs(node.outputs[1])) return;
  const Ref ds = dy ? norm_gradient(g, node, sum, dy) : g->of(sum);
  if (!ds) return;
  // Without a residual the sum is x itself: the gradient of x so far is included here.
  if (!node.outputs[0]) {
    if (g->needs(x)) g->replace(x, ds);
    return;
  }
  g->flow(x, ds, node);
  g->flow(node.inputs[residual_input(node.as<LayerNormAttr>())], ds, node);
}

bool repeat_layernorm(const Node& forward, Ref value, Ref again, Node* made) {
  if (forward.outputs[1] != value) return false;
  const Ref sum = forward.outputs[0] ? forward.outputs[0] : forward.inputs[0];
  std::vector<Ref> inputs = {sum, forward.inputs[1], forward.outputs[2], forward.outputs[3]};
  if (forward.as<LayerNormAttr>().has_bias) inputs.push_back(forward.inputs[2]);
  *made = {&kLayerNormApplyOp, std::move(inputs), {again}, forward.attr, forward.layer};
  return true;
}

std::vector<InPlace> layernorm_grad_in_place(const Node&) { return {{0, {0, 5}}}; }

}  // namespace

const OpRule kLayerNormOp = {
    .name = "layernorm",
    .shapes = layernorm_shapes,
    .place = place_layernorm,
    .localize = localize_plain,
    .gradient = layernorm_gradient,
    .repeat = repeat_layernorm,
    .in_place = not_in_place,
    .flops = no_flops,
};

const OpRule kLayerNormApplyOp = {
    .name = "layernorm_apply",
    .shapes = layernorm_apply_shapes,
    .place = place_layernorm_apply,
    .localize = localize_plain,
    .gradient = not_differentiable,
    .repeat = not_repeated,
    .in_place = not_in_place,
    .flops = no_flops,
};

const OpRule kLayerNormGradOp = {
    .name = "layernorm_grad",
    .traits = {.writes_gradients = true},
    .shapes = layernorm_grad_shapes,
    .place = place_layernorm_grad,
    .localize = localize_plain,
    .gradient = not_differentiable,
    .repeat = not_repeated,
    .in_place = layernorm_grad_in_place,
    .flops = no_flops,
};

ops::Normed ops::layernorm(Builder& g, Ref x, Ref residual, Ref weight, Ref bias, float eps) {
  const Shape s = g.shape(x);
  const auto check_parameter = [&](Ref r, const char* what) {
    check_operands(s.size() == 3 && g.shape(r) == Shape{s[2]}, &kLayerNormOp,
                   fmt::format("x {} needs a {} of its last dim, got {}", to_string(s), what,
                               to_string(g.shape(r))));
  };
  check_parameter(weight, "weight");
  if (bias) check_parameter(bias, "bias");
  check_operands(!residual || g.shape(residual) == s, &kLayerNormOp,
                 fmt::format("x {} needs a residual of its shape, got {}", to_string(s),
                             residual ? to_string(g.shape(residual)) : "none"));
  const Ref sum = residual ? g.activation("residual", s, g.compute()) : x;
  const Ref y = g.activation("normed", s, g.compute());
  const Ref mean = g.activation("mean", {s[0], s[1]}, Dtype::kF32);
  const Ref rstd = g.activation("rstd", {s[0], s[1]}, Dtype::kF32);
  std::vector<Ref> inputs = {x, weight};
  if (bias) inputs.push_back(bias);
  if (residual) inputs.push_back(residual);
  g.add(&kLayerNormOp, std::move(inputs), {residual ? sum : Ref{}, y, mean, rstd},
        LayerNormAttr{.eps = eps,
                      .has_bias = static_cast<bool>(bias),
                      .has_residual = static_cast<bool>(residual)});
  return {sum, y};
}

}  // namespace weft
