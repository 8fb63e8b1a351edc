// graph/ops/linear.cpp: shapes, placements, gradients and counts of products.
#include "graph/ops/linear.h"

#include <algorithm>

#include "base/error.h"
#include "graph/gradients.h"

namespace weft {
namespace {

using Inputs = std::vector<Placement>;

// Weights that a linear or linear_dx reads.
size_t num_weights(const LinearAttr& attr) {
  return static_cast<size_t>(std::max(attr.parts, attr.row_pieces));
}

int64_t sum_of_dim(const Graph& graph, const Node& node, size_t dim) {
  int64_t sum = 0;
  for (size_t p = 0; p < num_weights(node.as<LinearAttr>()); ++p)
    sum += graph[node.inputs[1 + p]].shape[dim];
  return sum;
}

// Pieces along the second dim are addends of y, and columns of dx.
std::vector<Shape> linear_shapes(const Graph& graph, const Node& node) {
  Shape shape = graph[node.inputs[0]].shape;
  const LinearAttr& attr = node.as<LinearAttr>();
  const size_t out = out_dim(attr);
  const bool row_cut = attr.row_pieces > 0;
  shape.back() = row_cut ? graph[node.inputs[1]].shape[out] : sum_of_dim(graph, node, out);
  return {shape};
}

std::vector<Shape> dx_shapes(const Graph& graph, const Node& node) {
  Shape shape = graph[node.inputs[0]].shape;
  const LinearAttr& attr = node.as<LinearAttr>();
  const size_t in = in_dim(attr);
  const bool row_cut = attr.row_pieces > 0;
  shape.back() = row_cut ? sum_of_dim(graph, node, in) : graph[node.inputs[1]].shape[in];
  return {shape};
}

std::vector<Shape> dw_shapes(const Graph&, const Node& node) {
  return std::vector<Shape>(node.outputs.size());
}

Placement cut_out(const Node& node) {
  return cut(static_cast<int>(out_dim(node.as<LinearAttr>())));
}
Placement cut_in(const Node& node) { return cut(static_cast<int>(in_dim(node.as<LinearAttr>()))); }

Inputs place_linear(const Node& node, const Inputs& in) {
  const size_t parts = static_cast<size_t>(node.as<LinearAttr>().parts);
  const size_t biases = in.size() - 1 - parts;
  if (rest_whole(in, 1) && (in[0].is_whole() || in[0].is_cut(0))) return {in[0]};
  if (in[0].is_whole() && all_are(in, 1, parts, cut_out(node)) &&
      all_are(in, 1 + parts, biases, cut(0)))
    return {cut(2)};
  // Every rank would add the bias: localize_linear moves it after the sum.
  const bool biases_whole = all_are(in, 1 + parts, biases, whole());
  if (in[0].is_cut(2) && all_are(in, 1, parts, cut_in(node)) && biases_whole) return {partial()};
  refuse_placement(node, in);
}

Inputs place_dx(const Node& node, const Inputs& in) {
  const size_t parts = in.size() - 1;
  if (rest_whole(in, 1) && (in[0].is_whole() || in[0].is_cut(0))) return {in[0]};
  if (in[0].is_cut(2) && all_are(in, 1, parts, cut_out(node))) return {partial()};
  if (in[0].is_whole() && all_are(in, 1, parts, cut_in(node))) return {cut(2)};
  refuse_placement(node, in);
}

Placement place_one_dw(const Node& node, const Inputs& in) {
  if (in[0].is_whole() && in[1].is_whole()) return whole();
  if (in[0].is_cut(0) && in[1].is_cut(0)) return partial();
  if (in[0].is_cut(2) && in[1].is_whole()) return cut_out(node);
  if (in[0].is_whole() && in[1].is_cut(2)) return cut_in(node);
  refuse_placement(node, in);
}

Inputs place_dw(const Node& node, const Inputs& in) {
  return Inputs(node.outputs.size(), place_one_dw(node, in));
}

Inputs place_bias_grad(const Node& node, const Inputs& in) {
  return Inputs(node.outputs.size(), in[0].is_cut(2) ? cut(0) : summed_over_rows(in[0], whole()));
}

// One node per run of adjacent parts that are not frozen and store in the same way. x: none for
// biases.
void add_parameter_runs(Gradients* g, const Node& node, Op op, size_t begin, Ref x) {
  const Ref dy = g->of(node.outputs[0]);
  const LinearAttr& attr = node.as<LinearAttr>();
  const size_t count = static_cast<size_t>(attr.parts);
  int64_t column = 0;
  Node* open = nullptr;
  for (size_t p = 0; p < count; ++p) {
    const Ref parameter = node.inputs[begin + p];
    if (!g->needs(parameter)) {
      open = nullptr;
    } else {
      const auto [linear_gradient, first] = g->of_parameter(parameter);
      if (open == nullptr || open->run.first_writer != first) {
        std::vector<Ref> inputs = {dy};
        if (x) inputs.push_back(x);
        open = &g->add(op, node, std::move(inputs), {},
                       LinearAttr{.parts = 0, .column = column, .order = attr.order});
        open->run.first_writer = first;
      }
      open->outputs.push_back(linear_gradient);
      ++open->edit<LinearAttr>().parts;
    }
    const Shape& shape = g->graph()[parameter].shape;
    column += shape[shape.size() == 1 ? 0 : out_dim(attr)];
  }
}

void linear_gradient(Gradients* g, const Node& node) {
  const Ref x = node.inputs[0], dy = g->of(node.outputs[0]);
  if (!dy) return;
  const LinearAttr& attr = node.as<LinearAttr>();
  const auto parts = static_cast<std::ptrdiff_t>(attr.parts);
  add_parameter_runs(g, node, &kLinearDwOp, 1, x);
  if (attr.has_bias) add_parameter_runs(g, node, &kBiasGradOp, 1 + static_cast<size_t>(parts), {});
  if (!g->needs(x)) return;
  const Ref dx = g->like(x);
  std::vector<Ref> inputs = {dy};
  inputs.insert(inputs.end(), node.inputs.begin() + 1, node.inputs.begin() + 1 + parts);
  g->add(&kLinearDxOp, node, std::move(inputs), {dx},
         LinearAttr{.parts = attr.parts, .order = attr.order});
  g->flow(x, dx, node);
}

double linear_flops(const Graph& graph, const Node& node) {
  double weights = 0;
  for (size_t p = 0; p < num_weights(node.as<LinearAttr>()); ++p)
    weights += elements_of(graph, node.inputs[1 + p]);
  return 2 * rows_of(graph, node.inputs[0]) * weights;
}

double dw_flops(const Graph& graph, const Node& node) {
  double weights = 0;
  for (Ref w : node.outputs) weights += elements_of(graph, w);
  return 2 * rows_of(graph, node.inputs[0]) * weights;
}

}  // namespace

const OpRule kLinearOp = {
    .name = "linear",
    .shapes = linear_shapes,
    .place = place_linear,
    .localize = localize_linear,
    .gradient = linear_gradient,
    .repeat = not_repeated,
    .in_place = not_in_place,
    .flops = linear_flops,
};

const OpRule kLinearDxOp = {
    .name = "linear_dx",
    .shapes = dx_shapes,
    .place = place_dx,
    .localize = localize_linear_dx,
    .gradient = not_differentiable,
    .repeat = not_repeated,
    .in_place = not_in_place,
    .flops = linear_flops,
};

const OpRule kLinearDwOp = {
    .name = "linear_dw",
    .traits = {.writes_gradients = true, .adds_into_slots = true},
    .shapes = dw_shapes,
    .place = place_dw,
    .localize = localize_weight_grad,
    .gradient = not_differentiable,
    .repeat = not_repeated,
    .in_place = not_in_place,
    .flops = dw_flops,
};

const OpRule kBiasGradOp = {
    .name = "bias_grad",
    .traits = {.writes_gradients = true},
    .shapes = dw_shapes,
    .place = place_bias_grad,
    .localize = localize_weight_grad,
    .gradient = not_differentiable,
    .repeat = not_repeated,
    .in_place = not_in_place,
    .flops = no_flops,
};

Ref ops::linear(Builder& g, Ref x, const std::vector<Ref>& weights, const std::vector<Ref>& biases,
                WeightOrder order) {
  const Op op = &kLinearOp;
  const LinearAttr attr{
      .parts = static_cast<int>(weights.size()), .has_bias = !biases.empty(), .order = order};
  const size_t in = in_dim(attr), out_at = out_dim(attr);
  check_operands(!weights.empty() && weights.size() <= 3, op, "wanted one to three weights");
  check_operands(biases.empty() || biases.size() == weights.size(), op,
                 "wanted one bias per weight, or none");
  int64_t columns = 0;
  for (size_t p = 0; p < weights.size(); ++p) {
    const Shape& w = g.shape(weights[p]);
    check_operands(w.size() == 2 && w[in] == g.shape(x).back(), op,
                   fmt::format("x {} needs weights of {} {}, got {}", to_string(g.shape(x)),
                               g.shape(x).back(), in == 1 ? "columns" : "rows", to_string(w)));
    if (!biases.empty()) {
      check_operands(g.shape(biases[p]) == Shape{w[out_at]}, op,
                     fmt::format("weight {} needs a bias of {} elements, got {}", to_string(w),
                                 w[out_at], to_string(g.shape(biases[p]))));
    }
    columns += w[out_at];
  }
  const Ref out = g.activation("linear", {g.shape(x)[0], g.shape(x)[1], columns}, g.compute());
  std::vector<Ref> inputs = {x};
  inputs.insert(inputs.end(), weights.begin(), weights.end());
  inputs.insert(inputs.end(), biases.begin(), biases.end());
  g.add(op, std::move(inputs), {out}, attr);
  return out;
}

}  // namespace weft
