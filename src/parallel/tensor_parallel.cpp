// parallel/tensor_parallel.cpp: replaces logical values node by node by this rank's part of them.
#include "parallel/tensor_parallel.h"

#include <set>

#include "base/error.h"
#include "graph/op_rule.h"
#include "graph/ops/add.h"
#include "graph/ops/collectives.h"

namespace weft {
namespace {

using Refs = std::vector<Ref>;

std::map<std::string, Placement> placements_of(const Cuts& cuts) {
  std::map<std::string, Placement> given;
  for (const auto& [name, c] : cuts) {
    if (c.dim >= 0) given[name] = cut(c.dim);
  }
  return given;
}

class Cutter : public Localizer {
 public:
  Cutter(const Graph& logical, const Cuts& cuts, const TensorParallel& mesh)
      : Localizer(logical, mesh, propagate_placements(logical, placements_of(cuts))), cuts_(cuts) {
    for (Ref r : placed_.reduced) reduced_.insert(r.id);
    for (const Node& node : logical.pass) {
      if (!node.op->traits.reads_one_piece) continue;
      for (Ref r : node.inputs) one_piece_.insert(r.id);
    }
    for (Ref r : logical.of_kind(ValueKind::kParameter)) {
      const auto found = cuts.find(logical[r].name);
      if (found == cuts.end() || found->second.dim < 0 || found->second.is_uneven) continue;
      const int64_t extent = logical[r].shape[static_cast<size_t>(found->second.dim)];
      if (!mesh.is_exact && !shared_units(extent / found->second.unit, mesh.tp).empty())
        has_spread_units_ = true;
    }
  }

  Graph run() {
    for (size_t i = 0; i < logical_.values.size(); ++i) {
      const ValueKind kind = logical_.values[i].kind;
      if (kind == ValueKind::kParameter) {
        cut_parameter(Ref{static_cast<int>(i)});
      } else if (kind != ValueKind::kActivation && kind != ValueKind::kGradient) {
        pieces_[i] = {local_.add(logical_.values[i])};
      }
    }
    for (const Update& u : logical_.updates) cut_gradient(u);
    for (const Node& node : logical_.pass) node.op->localize(this, node);
    return std::move(local_);
  }

  Ref addend(Ref logical, Dtype dtype, Ref bias = {}) override {
    Value v = logical_[logical];
    if (mesh_.tp == 1 || !reduced_.contains(logical.id)) return activation(logical, v.shape);
    const Ref sum = activation(logical, v.shape);
    v.name += ".partial";
    v.dtype = dtype;
    const Ref made = local_.add(std::move(v));
    sums_.push_back({&kAllReduceOp, {made}, {sum}, CollectiveAttr{}, -1});
    if (bias) sums_.back().inputs.push_back(bias);
    sums_.back().edit<CollectiveAttr>().has_bias = static_cast<bool>(bias);
    return made;
  }

  void push(Node made) override {
    const int layer = made.layer;
    local_.pass.push_back(std::move(made));
    for (Node& sum : sums_) {
      sum.layer = layer;
      local_.pass.push_back(std::move(sum));
    }
    sums_.clear();
  }

  bool is_copied(Ref logical_gradient) override {
    const auto found = copies_.find(pieces(logical_gradient)[0].id);
    return found != copies_.end() && found->second.leaves * found->second.ranks > 1;
  }

  Refs addends_of_copies(Ref gradient) override {
    const Copies copies = copies_.at(gradient.id);
    Value v = local_[gradient];
    v.kind = ValueKind::kActivation;
    v.name += ".addend";
    Refs addends;
    for (int i = 0; i < copies.leaves; ++i) addends.push_back(local_.add(v));
    Refs level = addends;
    while (level.size() > 1) {
      Refs sums;
      for (size_t i = 0; i < level.size(); i += 2) {
        const bool is_last = level.size() == 2 && copies.ranks == 1;
        sums.push_back(is_last ? gradient : local_.add(v));
        sums_.push_back({&kAddOp, {level[i], level[i + 1]}, {sums.back()}, {}, -1});
      }
      level = std::move(sums);
    }
    if (copies.ranks > 1) {
      sums_.push_back(
          {&kAllReduceOp, level, {gradient}, CollectiveAttr{.copies = copies.ranks}, -1});
    }
    return addends;
  }

  Ref gradient_of(Ref local_parameter) override { return gradient_of_.at(local_parameter.id); }

 private:
  void cut_parameter(Ref r) {
    const Value& v = logical_[r];
    const auto found = cuts_.find(v.name);
    if (found == cuts_.end() || found->second.dim < 0) {
      Value whole = v;
      whole.is_saved = mesh_.rank == 0;
      whole.portion = portion_of(v);
      pieces(r) = {local_.add(std::move(whole))};
      return;
    }
    const size_t dim = static_cast<size_t>(found->second.dim);
    TensorParallel mesh = mesh_;
    if (one_piece_.contains(r.id)) mesh.pieces = mesh.tp;
    for (const Piece& piece : pieces_of(mesh, found->second, v.shape[dim])) {
      Value part = v;
      Portion p = portion_of(v);
      p.offset[dim] = piece.begin;
      p.extent[dim] = piece.end - piece.begin;
      p.end = num_elements(p.extent);
      part.shape = p.extent;
      if (p.extent != p.shape) part.name = fmt::format("{}[{}:{}]", v.name, piece.begin, piece.end);
      part.is_saved = piece.is_first_copy;
      part.copies = piece.copies;
      part.copy_group = group_of(piece);
      part.portion = std::move(p);
      const Ref made = local_.add(std::move(part));
      pieces(r).insert(pieces(r).end(), static_cast<size_t>(piece.leaves), made);
    }
  }

  // Where ranks share only some units, they differ in what else their buckets hold (a bucket has
  // one copy_group): what all ranks have is in buckets that all have alike.
  int group_of(const Piece& piece) const {
    const bool is_on_all_ranks = piece.copy_group < 0 && piece.copies == mesh_.tp;
    return has_spread_units_ && is_on_all_ranks ? kWholeAxisGroup : piece.copy_group;
  }

  void cut_gradient(const Update& u) {
    const Refs& leaves = pieces(u.parameter);
    for (size_t i = 0; i < leaves.size(); ++i) {
      const Ref parameter = leaves[i];
      if (i > 0 && parameter == leaves[i - 1]) {  // another leaf that reads it
        if (mesh_.is_exact) ++copies_.at(pieces(u.gradient).back().id).leaves;
        continue;
      }
      const Value p = local_[parameter];
      Value g = logical_[u.gradient];
      g.name = p.name + "#grad";
      g.shape = p.shape;
      g.parameter = parameter;
      g.portion = p.portion;
      g.is_counted = p.is_saved;
      // In exact mode the pass sums the copies' addends, in fast mode the optimizer does.
      g.copies = mesh_.is_exact ? 1 : p.copies;
      g.copy_group = p.copy_group;
      const Ref made = local_.add(std::move(g));
      if (mesh_.is_exact) copies_[made.id] = {1, p.copies};
      gradient_of_[parameter.id] = made;
      pieces(u.gradient).push_back(made);
      local_.updates.push_back({parameter, made});
    }
  }

  struct Copies {
    int leaves, ranks;  // of this rank; neighbours that hold the parameter too
  };
  const Cuts& cuts_;
  bool has_spread_units_ = false;  // of some parameter, in fast mode
  std::set<int> reduced_;
  std::set<int> one_piece_;         // values of which a rank has one piece (OpTraits)
  std::map<int, Copies> copies_;    // by gradient of this rank, in exact mode
  std::map<int, Ref> gradient_of_;  // by parameter of this rank
  std::vector<Node> sums_;          // that follow the next node pushed
};

}  // namespace

void apply_tensor_parallel(Graph* graph, const Cuts& cuts, const TensorParallel& mesh) {
  ensure(graph->finish.empty(), "tensor parallelism comes before the optimizer");
  if (mesh.tp == 1 && mesh.pieces == 1) return;
  *graph = Cutter(*graph, cuts, mesh).run();
}

}  // namespace weft
