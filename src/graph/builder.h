// graph/builder.h: what model code traces with. The operations are free functions (graph/ops/),
// each of which checks shapes and adds one node.
#pragma once

#include <any>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace weft {

class Builder {
 public:
  explicit Builder(Graph* graph, Dtype compute) : graph_(*graph), compute_(compute) {}

  Ref input(std::string name, Shape shape, Dtype dtype, int64_t fill = 0);
  Ref constant(std::string name, Shape shape, Dtype dtype);
  Ref parameter(std::string name, Shape shape);
  Ref cache(std::string name, Shape shape);
  void set_layer(int layer) { layer_ = layer; }

  // For operations.
  Dtype compute() const { return compute_; }
  const Shape& shape(Ref r) const { return graph_[r].shape; }
  Ref activation(const char* what, Shape shape, Dtype dtype);
  Ref result(const char* name, Shape shape, Dtype dtype);
  // BugError where an output's shape does not match the operation's rule.
  void add(Op op, std::vector<Ref> inputs, std::vector<Ref> outputs, std::any attr = {});

 private:
  Graph& graph_;
  Dtype compute_;
  int layer_ = -1;
};

// BugError that names the operation, what was got and what was wanted.
void check_operands(bool ok, Op op, const std::string& what);

}  // namespace weft
