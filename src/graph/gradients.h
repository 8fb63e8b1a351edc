// graph/gradients.h: the backward pass under construction, as the rules of operations see it.
//
// The backward pass is of the SUM of token losses, so the seed is one and needs no value. A node's
// gradient nodes read the forward values that they need; whether those are kept or recomputed is
// decided later (parallel/recompute).
#pragma once

#include <any>
#include <map>
#include <vector>

#include "graph/graph.h"

namespace weft {

class Gradients {
 public:
  Gradients(Graph* graph, Dtype grad_dtype);

  // Whether the value depends on an unfrozen parameter.
  bool needs(Ref r) const;
  // The gradient of a value: the sum of all that was added so far; Ref{}: none.
  Ref of(Ref value) const;
  // A new activation that holds the gradient of a value.
  Ref like(Ref value);
  // The gradient of a parameter, and whether this is its first writer in the pass.
  struct ParameterGradient {
    Ref value;
    bool is_first = true;
  };
  ParameterGradient of_parameter(Ref parameter);
  // The same, or no value where the parameter is frozen.
  ParameterGradient of_parameter_if_needed(Ref parameter);
  Node& add(Op op, const Node& of, std::vector<Ref> inputs, std::vector<Ref> outputs,
            std::any attr = {});
  // One more gradient flows into an activation; several are added in trace order.
  void flow(Ref into, Ref gradient, const Node& of);
  // Replaces the gradient so far, which the new one already includes.
  void replace(Ref value, Ref gradient) { gradients_[value.id] = gradient; }

  Graph& graph() { return graph_; }

 private:
  Graph& graph_;
  Dtype grad_dtype_;
  std::vector<bool> needed_;
  std::map<int, Ref> gradients_;            // of activations, by value
  std::map<int, Ref> parameter_gradients_;  // by parameter
};

}  // namespace weft
