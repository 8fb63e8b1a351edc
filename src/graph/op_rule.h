// graph/op_rule.h: all that a graph knows about one operation (graph/ops/), asked by every pass.
//
// A rule says every part: where there is nothing to say it names the function that says so, and a
// part that is missing is refused when a node is checked. Passes ask rules and traits; they name
// only operations that they put themselves, and products, which they stack.
#pragma once

#include <cstddef>
#include <vector>

#include "graph/graph.h"
#include "graph/placement.h"

namespace weft {

class Gradients;  // graph/gradients.h
class Localizer;  // graph/localizer.h

// An output that may lie in the memory of one of some inputs (indices).
struct InPlace {
  size_t output;
  std::vector<size_t> inputs;
  bool must = false;  // the kernel has no other form
};

// What passes must know of an operation that is not plain computation.
struct OpTraits {
  bool is_collective = false;
  bool is_loss = false;          // its first output are the losses of all tokens
  bool begins_backward = false;  // everything behind it in the list is backward
  // It writes gradients of parameters, and adds where NodeRun says so ...
  bool writes_gradients = false;
  bool adds_into_slots = false;  // ... into accumulators of exact mode by itself
  // A table's gradient lies as the table does where that is cut, whatever the rule places: a rank
  // keeps the rows that are its own.
  bool gradient_lies_as_table = false;
  // Optimizers: inputs are parameter, gradient, scale, then the states; it changes all but the
  // gradient and the scale.
  bool is_update = false;
};

struct OpRule {
  const char* name;
  OpTraits traits = {};
  // Shapes of the outputs, from inputs and attributes. Asked again for the local node that tensor
  // parallelism makes. An empty shape stands for the gradient of a parameter, which must have its
  // shape.
  std::vector<Shape> (*shapes)(const Graph&, const Node&) = nullptr;
  // How the outputs lie on a mesh axis (graph/placement.h); no input is partial.
  std::vector<Placement> (*place)(const Node&, const std::vector<Placement>&) = nullptr;
  // Pushes the nodes of one tensor-parallel rank.
  void (*localize)(Localizer*, const Node&) = nullptr;
  // Adds the nodes of its gradient.
  void (*gradient)(Gradients*, const Node&) = nullptr;
  // The node that computes `value` again, as `again`, with the same bits; false: it is kept.
  bool (*repeat)(const Node& forward, Ref value, Ref again, Node* made) = nullptr;
  // Of operations whose gradient computes their value on the way: that operation, whose nodes read
  // this one's first input, and take one more output for it.
  const OpRule* repeated_by = nullptr;
  std::vector<InPlace> (*in_place)(const Node&) = nullptr;
  // Of its products (a multiply and an add count two).
  double (*flops)(const Graph&, const Node&) = nullptr;
};

// Where there is nothing to say.
std::vector<Shape> shape_of_first_input(const Graph& graph, const Node& node);
// Of collectives that cut or join buckets, which only the pass that puts them knows.
std::vector<Shape> shapes_as_given(const Graph& graph, const Node& node);
std::vector<Placement> no_placement(const Node& node, const std::vector<Placement>& inputs);
// Of generation, or added after tensor parallelism.
void not_localized(Localizer* localizer, const Node& node);
void not_differentiable(Gradients* gradients, const Node& node);
bool not_repeated(const Node& forward, Ref value, Ref again, Node* made);
std::vector<InPlace> not_in_place(const Node& node);
double no_flops(const Graph& graph, const Node& node);

// BugError where a part of the rule is missing, or an output has another shape than the rule's.
void check_node(const Graph& graph, const Node& node);

inline const char* op_name(Op op) { return op->name; }
inline bool is_collective(Op op) { return op->traits.is_collective; }
inline double node_flops(const Graph& graph, const Node& node) {
  return node.op->flops(graph, node);
}

// For flops: elements of a value, and its rows (all dimensions but the last).
double elements_of(const Graph& graph, Ref r);
double rows_of(const Graph& graph, Ref r);

}  // namespace weft
