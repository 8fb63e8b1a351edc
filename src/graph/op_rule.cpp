// graph/op_rule.cpp: empty rules, and the check of a node against its rule.
#include "graph/op_rule.h"

#include "base/error.h"

namespace weft {

std::vector<Shape> shape_of_first_input(const Graph& graph, const Node& node) {
  return {graph[node.inputs[0]].shape};
}

std::vector<Shape> shapes_as_given(const Graph& graph, const Node& node) {
  std::vector<Shape> shapes;
  for (Ref r : node.outputs) shapes.push_back(r ? graph[r].shape : Shape{});
  return shapes;
}

std::vector<Placement> no_placement(const Node& node, const std::vector<Placement>& inputs) {
  refuse_placement(node, inputs);
}

void not_localized(Localizer*, const Node& node) {
  throw BugError(fmt::format("[{}] is not cut over tensor-parallel ranks", op_name(node.op)));
}

void not_differentiable(Gradients*, const Node& node) {
  throw BugError(fmt::format("[{}] has no gradient", op_name(node.op)));
}

bool not_repeated(const Node&, Ref, Ref, Node*) { return false; }

std::vector<InPlace> not_in_place(const Node&) { return {}; }

double no_flops(const Graph&, const Node&) { return 0; }

namespace {

[[noreturn]] void refuse_node(const Node& node, const std::string& what) {
  throw BugError(fmt::format("[{}] {}", op_name(node.op), what));
}

// A gradient is a value of its parameter; in a bucket of accumulators, or flat, it is a segment.
void check_gradient(const Graph& graph, const Node& node, Ref out) {
  const Ref parameter = graph[out].parameter;
  if (!parameter) refuse_node(node, graph[out].name + " is not a gradient of a parameter");
  if (num_elements(graph[out].shape) == num_elements(graph[parameter].shape)) return;
  refuse_node(node, fmt::format("{} is {}, its parameter {}", graph[out].name,
                                to_string(graph[out].shape), to_string(graph[parameter].shape)));
}

}  // namespace

void check_node(const Graph& graph, const Node& node) {
  ensure(node.op != nullptr, "a node without an operation");
  const OpRule& rule = *node.op;
  const bool is_complete = rule.shapes && rule.place && rule.localize && rule.gradient &&
                           rule.repeat && rule.in_place && rule.flops;
  if (!is_complete) refuse_node(node, "its rule is incomplete");
  const std::vector<Shape> shapes = rule.shapes(graph, node);
  if (shapes.size() != node.outputs.size()) {
    refuse_node(node, fmt::format("has {} outputs, wanted {}", node.outputs.size(), shapes.size()));
  }
  for (size_t k = 0; k < shapes.size(); ++k) {
    const Ref out = node.outputs[k];
    if (!out) continue;
    if (shapes[k].empty()) {
      check_gradient(graph, node, out);
    } else if (graph[out].shape != shapes[k]) {
      refuse_node(node, fmt::format("{} is {}, wanted {}", graph[out].name,
                                    to_string(graph[out].shape), to_string(shapes[k])));
    }
  }
}

double elements_of(const Graph& graph, Ref r) {
  return static_cast<double>(num_elements(graph[r].shape));
}

double rows_of(const Graph& graph, Ref r) {
  return elements_of(graph, r) / static_cast<double>(graph[r].shape.back());
}

}  // namespace weft
