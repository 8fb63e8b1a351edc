// graph/localizer.h: the graph of one tensor-parallel rank under construction, as the rules of
// operations see it (parallel/tensor_parallel.cpp).
//
// A logical value becomes values of this rank: an activation one, a cut parameter a value per leaf
// that reads it (the same several times where leaves share it), a gradient one per piece.
#pragma once

#include <any>
#include <map>
#include <vector>

#include "graph/graph.h"
#include "graph/placement.h"

namespace weft {

struct TensorParallel {
  int tp = 1, rank = 0;
  int pieces = 1;  // of a cut parameter; a multiple of tp
  bool is_exact = false;
  int pieces_per_rank() const { return pieces / tp; }
};

class Localizer {
 public:
  virtual ~Localizer() = default;

  const TensorParallel& mesh() const { return mesh_; }
  const Graph& logical() const { return logical_; }
  Graph& local() { return local_; }
  const Placement& placement(Ref logical) const {
    return placed_.values[static_cast<size_t>(logical.id)];
  }
  std::vector<Ref>& pieces(Ref logical) { return pieces_[static_cast<size_t>(logical.id)]; }
  // This rank's single value for a logical one; Ref{} for none.
  Ref one(Ref logical);
  const Shape& local_shape(Ref logical) { return local_[one(logical)].shape; }

  // A node of the same operation and place in the model, without inputs and outputs.
  static Node copy(const Node& node) { return {node.op, {}, {}, node.attr, node.layer, node.run}; }
  // The pieces of inputs [begin, begin + count) as inputs of `made`.
  void add_pieces(const Node& node, size_t begin, size_t count, Node* made);

  // This rank's value for an activation.
  Ref activation(Ref logical, Shape shape);
  // The output of the next node where each rank has only an addend of the logical value: the sum
  // follows that node and stands for the logical value. bias: is added to the sum.
  virtual Ref addend(Ref logical, Dtype dtype, Ref bias = {}) = 0;
  // The addend's type. Exact: fp32 until the whole tree is added, then one rounding.
  Dtype addend_dtype(Ref logical) const {
    return mesh_.is_exact ? Dtype::kF32 : logical_[logical].dtype;
  }
  virtual void push(Node made) = 0;
  // For operations on independent columns (heads) and rows: each value becomes its local one, with
  // the shapes of the operation's rule. attr: this rank's.
  void push_plain(const Node& node, std::any attr);

  // Where the columns of a parameter begin in the product that reads it, on this rank.
  void set_column(Ref parameter, int64_t column) { columns_[parameter.id] = column; }
  int64_t column(Ref parameter, int64_t otherwise) const;

  // Parameters of which neighbouring ranks, or leaves of this rank, have copies.
  virtual bool is_copied(Ref logical_gradient) = 0;
  // The outputs of the next node: an addend of the gradient from each leaf of this rank that reads
  // its parameter. Their sum follows that node, a tree whose upper levels span the ranks.
  virtual std::vector<Ref> addends_of_copies(Ref local_gradient) = 0;
  virtual Ref gradient_of(Ref local_parameter) = 0;

 protected:
  Localizer(const Graph& logical, const TensorParallel& mesh, Placed placed)
      : logical_(logical),
        mesh_(mesh),
        placed_(std::move(placed)),
        pieces_(logical.values.size()) {}

  const Graph& logical_;
  TensorParallel mesh_;
  Placed placed_;
  Graph local_;
  std::vector<std::vector<Ref>> pieces_;  // by logical value

 private:
  std::map<int, int64_t> columns_;  // by logical parameter
};

// The rule of an operation whose attributes do not depend on the rank.
void localize_plain(Localizer* localizer, const Node& node);

}  // namespace weft
