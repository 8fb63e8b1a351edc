// graph/op_rule.h: everything a graph knows about one operation (graph/ops/), used by every pass.
//
// A rule defines every part: a part that does not apply names a function that says so, and a
// missing part is an error when a node is checked. Passes use rules and traits; they name only
// operations that they insert themselves, and products, which they stack.
#pragma once

#include <cstddef>
#include <vector>

#include "graph/graph.h"
#include "graph/placement.h"

namespace weft {

class Gradients;  // graph/gradients.h
class Localizer;  // graph/localizer.h

// An output that may share the memory of one of some inputs (indices).
struct InPlace {
  size_t output;
  std::vector<size_t> inputs;
  bool must = false;  // the kernel has no other form
};

// What passes must know about an operation that is not plain computation.
struct OpTraits {
  bool is_collective = false;
  bool is_loss = false;          // its first output is the losses of all tokens
  bool begins_backward = false;  // everything after it in the list is backward
  // It writes gradients of parameters, and accumulates where NodeRun requires ...
  bool writes_gradients = false;
  bool adds_into_slots = false;  // ... directly into exact mode's accumulators
  // A table's gradient is cut like the table, whatever the rule's placement: a rank keeps its own
  // rows.
  bool gradient_lies_as_table = false;
  // Optimizers: inputs are parameter, gradient, scale, then the states; it updates all but the
  // gradient and the scale.
  bool is_update = false;
  // Of a cut parameter that it reads, a rank has one piece in exact mode, too: no sum runs over the
  // cut dim.
  bool reads_one_piece = false;
};

struct OpRule {
  const char* name;
  OpTraits traits = {};
  // Shapes of the outputs, from inputs and attributes. Also called for the local node of tensor
  // parallelism. An empty shape means a parameter's gradient, which must have the parameter's
  // shape.
  std::vector<Shape> (*shapes)(const Graph&, const Node&) = nullptr;
  // How the outputs are placed on a mesh axis (graph/placement.h); no input is partial.
  std::vector<Placement> (*place)(const Node&, const std::vector<Placement>&) = nullptr;
  // Pushes the nodes of one tensor-parallel rank.
  void (*localize)(Localizer*, const Node&) = nullptr;
  // Adds the nodes of its gradient.
  void (*gradient)(Gradients*, const Node&) = nullptr;
  // The node that recomputes `value`, as `again`, with the same bits; false: it is kept.
  bool (*repeat)(const Node& forward, Ref value, Ref again, Node* made) = nullptr;
  // For operations whose gradient also computes their value: that gradient operation, whose nodes
  // read this one's first input, and get one more output for it.
  const OpRule* repeated_by = nullptr;
  std::vector<InPlace> (*in_place)(const Node&) = nullptr;
  // Of its products (a multiply and an add count as two).
  double (*flops)(const Graph&, const Node&) = nullptr;
};

// For parts that do not apply.
std::vector<Shape> shape_of_first_input(const Graph& graph, const Node& node);
// For collectives that cut or join buckets, whose shapes only the inserting pass knows.
std::vector<Shape> shapes_as_given(const Graph& graph, const Node& node);
std::vector<Placement> no_placement(const Node& node, const std::vector<Placement>& inputs);
// For nodes added after tensor parallelism.
void not_localized(Localizer* localizer, const Node& node);
void not_differentiable(Gradients* gradients, const Node& node);
bool not_repeated(const Node& forward, Ref value, Ref again, Node* made);
std::vector<InPlace> not_in_place(const Node& node);
double no_flops(const Graph& graph, const Node& node);

// BugError where a part of the rule is missing, or an output's shape differs from the rule's.
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
