// parallel/tensor_parallel.cpp: node by node, logical values become what this rank holds of them.
#include "parallel/tensor_parallel.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "graph/placement.h"

namespace weft {
namespace {

using Refs = std::vector<Ref>;

class Cutter {
 public:
  Cutter(const Graph& logical, const Cuts& cuts, const TensorParallel& mesh)
      : in_(logical), cuts_(cuts), mesh_(mesh), local_(logical.values.size()) {
    std::map<std::string, Placement> given;
    for (const auto& [name, c] : cuts) {
      if (c.dim >= 0) given[name] = cut(c.dim);
    }
    placed_ = propagate_placements(logical, given);
    for (Ref r : placed_.reduced) reduced_.insert(r.id);
  }

  Graph run() {
    for (size_t i = 0; i < in_.values.size(); ++i) {
      const ValueKind kind = in_.values[i].kind;
      if (kind == ValueKind::kParameter) {
        cut_parameter(Ref{static_cast<int>(i)});
      } else if (kind != ValueKind::kActivation && kind != ValueKind::kGradient) {
        local_[i] = {out_.add(in_.values[i])};
      }
    }
    for (const Update& u : in_.updates) cut_gradient(u);
    for (const Node& node : in_.pass) rewrite(node);
    return std::move(out_);
  }

 private:
  // ---------------------------------------------------------------- values
  Refs& local(Ref r) { return local_[static_cast<size_t>(r.id)]; }
  Ref one(Ref r) {
    if (!r) return r;
    ensure(local(r).size() == 1, in_[r].name + " is not one value");
    return local(r)[0];
  }
  const Placement& placement(Ref r) const { return placed_.values[static_cast<size_t>(r.id)]; }
  const Shape& local_shape(Ref r) { return out_[one(r)].shape; }

  void cut_parameter(Ref r) {
    const Value& v = in_[r];
    const auto found = cuts_.find(v.name);
    if (found == cuts_.end() || found->second.dim < 0) {
      Value whole = v;
      whole.is_saved = mesh_.rank == 0;
      whole.portion = portion_of(v);
      local(r) = {out_.add(std::move(whole))};
      return;
    }
    const size_t dim = static_cast<size_t>(found->second.dim);
    for (const Piece& piece : pieces_of(mesh_, found->second, v.shape[dim])) {
      Value part = v;
      Portion p = portion_of(v);
      p.offset[dim] = piece.begin;
      p.extent[dim] = piece.end - piece.begin;
      p.end = num_elements(p.extent);
      part.shape = p.extent;
      if (p.extent != p.shape) part.name = fmt::format("{}[{}:{}]", v.name, piece.begin, piece.end);
      part.is_saved = piece.is_first_copy;
      part.copies = piece.copies;
      part.copy_group = piece.copy_group;
      part.portion = std::move(p);
      const Ref made = out_.add(std::move(part));
      local(r).insert(local(r).end(), static_cast<size_t>(piece.leaves), made);
    }
  }

  void cut_gradient(const Update& u) {
    const Refs& leaves = local(u.parameter);
    for (size_t i = 0; i < leaves.size(); ++i) {
      const Ref parameter = leaves[i];
      if (i > 0 && parameter == leaves[i - 1]) {  // one more leaf that reads it
        if (mesh_.is_exact) ++copies_.at(local(u.gradient).back().id).leaves;
        continue;
      }
      const Value p = out_[parameter];
      Value g = in_[u.gradient];
      g.name = p.name + "#grad";
      g.shape = p.shape;
      g.parameter = parameter;
      g.portion = p.portion;
      g.is_counted = p.is_saved;
      // In exact mode the pass adds up the copies' addends, in fast mode the optimizer.
      g.copies = mesh_.is_exact ? 1 : p.copies;
      g.copy_group = p.copy_group;
      const Ref made = out_.add(std::move(g));
      if (mesh_.is_exact) copies_[made.id] = {1, p.copies};
      gradient_of_[parameter.id] = made;
      local(u.gradient).push_back(made);
      out_.updates.push_back({parameter, made});
    }
  }

  Ref activation(Ref logical, Shape shape) {
    Value v = in_[logical];
    v.shape = std::move(shape);
    local(logical) = {out_.add(std::move(v))};
    return local(logical)[0];
  }

  // ---------------------------------------------------------------- nodes
  void rewrite(const Node& node) {
    switch (node.op) {
      case Op::kLinear:
        return linear(node);
      case Op::kLinearDx:
        return linear_dx(node);
      case Op::kLinearDw:
      case Op::kBiasGrad:
        return weight_grad(node);
      case Op::kEmbedding:
        return embedding(node);
      case Op::kHeadLoss:
      case Op::kHeadLossGrad:
        return head(node);
      default:
        return plain(node);
    }
  }

  Node copy(const Node& node) const { return {node.op, {}, {}, node.attr, node.layer}; }

  // Ops that treat columns (heads) and rows alone: each value becomes its local one.
  void plain(const Node& node) {
    Node made = copy(node);
    for (Ref r : node.inputs) {
      ensure(local(r).size() <= 1 || node.op == Op::kEmbeddingGrad, "a cut input of a plain op");
      made.inputs.push_back(one(r));
    }
    localize_heads(node, &made);
    for (size_t k = 0; k < node.outputs.size(); ++k) {
      const Ref r = node.outputs[k];
      if (r && in_[r].kind == ValueKind::kActivation) {
        made.outputs.push_back(activation(r, plain_shape(node, k, made.attr)));
      } else if (r) {
        for (Ref piece : local(r)) made.outputs.push_back(piece);
      } else {
        made.outputs.push_back(Ref{});
      }
    }
    push(std::move(made));
  }

  void localize_heads(const Node& node, Node* made) {
    if (node.attr.heads == 0 || !placement(node.inputs[0]).is_cut(2)) return;
    made->attr.heads = node.attr.heads / mesh_.tp;
    made->attr.first_head = mesh_.rank * made->attr.heads;
    // Columns of qkv are heads + 2 kv_heads; what is not q is k and v.
    const int64_t heads = local_shape(node.inputs[0]).back() / node.attr.head_dim;
    if (node.op == Op::kAttentionGrad || node.op == Op::kAttention || node.op == Op::kRope ||
        node.op == Op::kRopeInverse) {
      made->attr.kv_heads = (heads - made->attr.heads) / 2;
    }
  }

  Shape plain_shape(const Node& node, size_t output, const Attributes& attr) {
    const Ref r = node.outputs[output];
    Shape shape = in_[r].shape;
    if (placement(r).is_whole() || placement(r).is_partial()) return shape;
    switch (node.op) {
      case Op::kSwiglu:
        shape[2] = local_shape(node.inputs[0])[2] / 2;
        return shape;
      case Op::kAttention:
        if (output == 0) shape[2] = attr.heads * attr.head_dim;
        if (output == 1) shape[1] = attr.heads;
        return shape;
      case Op::kSwigluGrad:
        return local_shape(node.inputs[output == 0 ? 1 : 0]);
      default:  // rope, attention gradient, add: as the first input
        return local_shape(node.inputs[0]);
    }
  }

  bool is_row_cut(Ref weight) const { return placement(weight).is_cut(1); }

  void add_pieces(const Node& node, size_t begin, size_t count, Node* made) {
    for (size_t i = begin; i < begin + count; ++i) {
      for (Ref piece : local(node.inputs[i])) made->inputs.push_back(piece);
    }
  }

  int64_t sum_of_dim(const Node& made, size_t begin, size_t end, size_t dim) {
    int64_t sum = 0;
    for (size_t i = begin; i < end; ++i) sum += out_[made.inputs[i]].shape[dim];
    return sum;
  }

  void linear(const Node& node) {
    Node made = copy(node);
    made.inputs.push_back(one(node.inputs[0]));
    const size_t parts = static_cast<size_t>(node.attr.parts);
    add_pieces(node, 1, parts, &made);
    const size_t num_pieces = made.inputs.size() - 1;
    Shape shape = in_[node.outputs[0]].shape;
    if (is_row_cut(node.inputs[1])) {
      made.attr.row_pieces = static_cast<int>(num_pieces);
      Ref bias = node.attr.has_bias ? one(node.inputs[2]) : Ref{};
      if (mesh_.tp == 1 && bias) made.inputs.push_back(bias);
      made.attr.has_bias = mesh_.tp == 1 && bias;
      made.outputs = {addend(node.outputs[0], exact_dtype(node.outputs[0]), bias)};
      return push(std::move(made));
    }
    made.attr.parts = static_cast<int>(num_pieces);
    shape.back() = sum_of_dim(made, 1, 1 + num_pieces, 0);
    if (node.attr.has_bias) add_pieces(node, 1 + parts, parts, &made);
    note_columns(node);
    made.outputs.push_back(activation(node.outputs[0], std::move(shape)));
    push(std::move(made));
  }

  // Where the columns of each weight and bias of a product begin, on this rank.
  void note_columns(const Node& node) {
    const size_t parts = static_cast<size_t>(node.attr.parts);
    int64_t column = 0;
    for (size_t p = 0; p < parts; ++p) {
      column_[node.inputs[1 + p].id] = column;
      if (node.attr.has_bias) column_[node.inputs[1 + parts + p].id] = column;
      for (Ref piece : local(node.inputs[1 + p])) column += out_[piece].shape[0];
    }
  }

  void linear_dx(const Node& node) {
    Node made = copy(node);
    made.inputs.push_back(one(node.inputs[0]));
    add_pieces(node, 1, node.inputs.size() - 1, &made);
    const size_t num_pieces = made.inputs.size() - 1;
    Shape shape = in_[node.outputs[0]].shape;
    if (is_row_cut(node.inputs[1])) {
      made.attr.row_pieces = static_cast<int>(num_pieces);
      shape.back() = sum_of_dim(made, 1, 1 + num_pieces, 1);
      made.outputs = {activation(node.outputs[0], std::move(shape))};
      return push(std::move(made));
    }
    made.attr.parts = static_cast<int>(num_pieces);
    if (placement(node.outputs[0]).is_partial()) {
      if (mesh_.is_exact) made.attr.leaves = mesh_.pieces_a_rank();
      made.outputs = {addend(node.outputs[0], exact_dtype(node.outputs[0]))};
    } else {
      made.outputs = {activation(node.outputs[0], std::move(shape))};
    }
    push(std::move(made));
  }

  // Exact: fp32 until the whole tree is added, then one rounding.
  Dtype exact_dtype(Ref logical) const { return mesh_.is_exact ? Dtype::kF32 : in_[logical].dtype; }

  // What the next node pushed writes where each rank has only an addend of the logical value: the
  // sum follows that node and takes the logical value's place.
  Ref addend(Ref logical, Dtype dtype, Ref bias = {}) {
    Value v = in_[logical];
    if (mesh_.tp == 1 || !reduced_.contains(logical.id)) return activation(logical, v.shape);
    const Ref sum = activation(logical, v.shape);
    v.name += ".partial";
    v.dtype = dtype;
    const Ref made = out_.add(std::move(v));
    sums_.push_back({Op::kAllReduce, {made}, {sum}, {}, -1});
    if (bias) sums_.back().inputs.push_back(bias);
    sums_.back().attr.has_bias = static_cast<bool>(bias);
    return made;
  }

  void push(Node made) {
    const int layer = made.layer;
    out_.pass.push_back(std::move(made));
    for (Node& sum : sums_) {
      sum.layer = layer;
      out_.pass.push_back(std::move(sum));
    }
    sums_.clear();
  }

  // linear_dw, bias_grad: the gradients of this rank's pieces. Those of which there are copies are
  // made by a node of their own, which writes an addend a leaf.
  void weight_grad(const Node& node) {
    if (is_spread(node)) return spread_weight_grad(node);
    size_t end = 0;
    for (size_t begin = 0; begin < node.outputs.size(); begin = end) {
      Node made = copy(node);
      for (Ref r : node.inputs) made.inputs.push_back(one(r));
      const bool copied = is_copied(node.outputs[begin]);
      while (end < node.outputs.size() && is_copied(node.outputs[end]) == copied) {
        for (Ref g : local(node.outputs[end++])) {
          const Refs written = copied ? addends_of_copies(g) : Refs{g};
          made.outputs.insert(made.outputs.end(), written.begin(), written.end());
        }
      }
      const Ref first = in_[node.outputs[begin]].parameter;
      if (is_row_cut(first)) {
        made.attr.row_pieces = static_cast<int>(made.outputs.size());
      } else {
        made.attr.parts = static_cast<int>(made.outputs.size());
        made.attr.column = local_column(first, node.attr.column);
      }
      push(std::move(made));
    }
  }

  // Fast mode: whether leaves of this rank share a gradient.
  bool is_spread(const Node& node) {
    return !mesh_.is_exact && std::any_of(node.outputs.begin(), node.outputs.end(), [&](Ref g) {
      return local(in_[g].parameter).size() != local(g).size();
    });
  }

  // The first leaf of a gradient stores it, those behind add to it; leaves that store and lie one
  // behind the other are one node.
  void spread_weight_grad(const Node& node) {
    std::vector<Node> made;
    int64_t end = -1;  // of the last node's columns
    for (Ref g : node.outputs) {
      const Refs& leaves = local(in_[g].parameter);
      int64_t column = local_column(in_[g].parameter, node.attr.column);
      for (size_t i = 0; i < leaves.size(); ++i) {
        const bool stores = i == 0 || leaves[i] != leaves[i - 1];
        if (!stores || column != end || made.back().attr.first_writer != node.attr.first_writer) {
          made.push_back(copy(node));
          for (Ref r : node.inputs) made.back().inputs.push_back(one(r));
          made.back().attr.column = column;
          made.back().attr.first_writer = node.attr.first_writer && stores;
        }
        made.back().outputs.push_back(gradient_of_.at(leaves[i].id));
        end = column += out_[leaves[i]].shape[0];
      }
    }
    for (Node& n : made) {
      n.attr.parts = static_cast<int>(n.outputs.size());
      push(std::move(n));
    }
  }

  bool is_copied(Ref logical_gradient) {
    const auto found = copies_.find(local(logical_gradient)[0].id);
    return found != copies_.end() && found->second.leaves * found->second.ranks > 1;
  }

  // What the next node pushed writes: an addend of the gradient from each leaf of this rank that
  // reads its parameter. Their sum follows that node, a tree whose upper levels are the ranks'.
  Refs addends_of_copies(Ref gradient) {
    const Copies copies = copies_.at(gradient.id);
    Value v = out_[gradient];
    v.kind = ValueKind::kActivation;
    v.name += ".addend";
    Refs addends;
    for (int i = 0; i < copies.leaves; ++i) addends.push_back(out_.add(v));
    Refs level = addends;
    while (level.size() > 1) {
      Refs sums;
      for (size_t i = 0; i < level.size(); i += 2) {
        const bool is_last = level.size() == 2 && copies.ranks == 1;
        sums.push_back(is_last ? gradient : out_.add(v));
        sums_.push_back({Op::kAdd, {level[i], level[i + 1]}, {sums.back()}, {}, -1});
      }
      level = std::move(sums);
    }
    if (copies.ranks > 1) {
      sums_.push_back({Op::kAllReduce, level, {gradient}, {}, -1});
      sums_.back().attr.copies = copies.ranks;
    }
    return addends;
  }

  int64_t local_column(Ref parameter, int64_t logical) const {
    const auto found = column_.find(parameter.id);
    return found == column_.end() ? logical : found->second;
  }

  // ids, table pieces -> rows of the pieces, zeros for ids of other ranks.
  void embedding(const Node& node) {
    Node made = copy(node);
    made.inputs = {one(node.inputs[0])};
    add_pieces(node, 1, 1, &made);
    made.attr.parts = static_cast<int>(made.inputs.size()) - 1;
    // All addends but one are zero: their sum is exact in any type.
    made.outputs = {addend(node.outputs[0], in_[node.outputs[0]].dtype)};
    push(std::move(made));
  }

  // x, weight pieces, targets -> losses, dx, gradient pieces.
  void head(const Node& node) {
    Node made = copy(node);
    made.inputs = {one(node.inputs[0])};
    add_pieces(node, 1, 1, &made);
    made.attr.parts = static_cast<int>(made.inputs.size()) - 1;
    if (mesh_.is_exact) made.attr.leaves = made.attr.parts;
    made.inputs.push_back(one(node.inputs[2]));
    made.outputs = {activation(node.outputs[0], in_[node.outputs[0]].shape)};
    if (node.op == Op::kHeadLossGrad) {
      const Ref dx = node.outputs[1], dweight = node.outputs[2];
      made.outputs.push_back(dx ? addend(dx, exact_dtype(dx)) : Ref{});
      for (Ref piece : dweight ? local(dweight) : Refs{Ref{}}) made.outputs.push_back(piece);
    }
    push(std::move(made));
  }

  const Graph& in_;
  const Cuts& cuts_;
  TensorParallel mesh_;
  Placed placed_;
  std::set<int> reduced_;
  // By logical value. Of a parameter: one a leaf, the same several times where leaves share it.
  std::vector<Refs> local_;
  struct Copies {
    int leaves, ranks;  // of this rank; neighbours that hold the parameter too
  };
  std::map<int, Copies> copies_;    // by gradient of this rank, in exact mode
  std::map<int, Ref> gradient_of_;  // by parameter of this rank
  std::vector<Node> sums_;          // that follow the next node pushed
  std::map<int, int64_t> column_;   // by logical parameter: its first column in the product
  Graph out_;
};

}  // namespace

void apply_tensor_parallel(Graph* graph, const Cuts& cuts, const TensorParallel& mesh) {
  ensure(graph->finish.empty(), "tensor parallelism comes before the optimizer");
  if (mesh.tp == 1 && mesh.pieces == 1) return;
  *graph = Cutter(*graph, cuts, mesh).run();
}

}  // namespace weft
