// exec/memory_parts.cpp: derives the roles of values from their readers and writers.
#include "exec/memory_parts.h"

#include <algorithm>
#include <map>
#include <set>

#include "graph/ops/collectives.h"

namespace weft {
namespace {

int root(const Graph& graph, Ref r) { return graph.storage_of(r).root.id; }

// Gradients as the optimizer reads them, and the accumulators of those that are cut every pass.
std::set<int> kept_gradients(const Graph& graph) {
  std::set<int> found;
  for (const Update& u : graph.updates) found.insert(root(graph, u.gradient));
  for (const Node& node : graph.pass) {
    if (node.op == &kAllToAllOp) found.insert(root(graph, node.outputs[0]));
  }
  return found;
}

class Roles {
 public:
  explicit Roles(const Plan& plan)
      : graph_(plan.graph), places_(plan.memory.places), gradients_(kept_gradients(plan.graph)) {
    for (const auto* list : {&graph_.pass, &graph_.finish}) {
      for (const Node& node : *list) add(node);
    }
  }

  bool is_gradient(size_t i) const { return gradients_.contains(static_cast<int>(i)); }
  const std::set<int>& communication() const { return communication_; }

 private:
  const Place& place(int id) const { return places_[static_cast<size_t>(id)]; }

  void add(const Node& node) {
    if (!is_collective(node.op)) return;
    for (Ref r : node.inputs) {
      if (r && !is_sum_in_place(node, r)) note(r);
    }
    if (node.op == &kAllGatherOp) note(node.outputs[0]);
    if (node.op == &kAllToAllOp) note(node.outputs[1]);
  }

  // The sum is in the addend's memory: an activation, which would also exist on one rank.
  bool is_sum_in_place(const Node& node, Ref r) const {
    if (node.op != &kAllReduceOp) return false;
    const Place& in = place(root(graph_, r));
    const Place& out = place(root(graph_, node.outputs[0]));
    return in.offset == out.offset && in.first == out.first;
  }

  void note(Ref r) {
    const int id = root(graph_, r);
    if (place(id).region == Place::Region::kStep && !gradients_.contains(id))
      communication_.insert(id);
  }

  const Graph& graph_;
  const std::vector<Place>& places_;
  std::set<int> gradients_, communication_;
};

// The maximum bytes alive at one node.
int64_t most_at_once(const std::vector<Place>& places, const std::set<int>& ids) {
  std::map<int, int64_t> change;
  for (int id : ids) {
    const Place& p = places[static_cast<size_t>(id)];
    change[p.first] += align_up(p.bytes);
    change[p.last + 1] -= align_up(p.bytes);
  }
  int64_t live = 0, most = 0;
  for (const auto& [node, bytes] : change) most = std::max(most, live += bytes);
  return most;
}

}  // namespace

MemoryParts memory_parts(const Plan& train, const ArenaLayout& arena) {
  const std::vector<Place>& places = train.memory.places;
  const Roles roles(train);
  MemoryParts parts;
  // Gradients may reuse the memory of activations; scratch outside all values is not activations.
  int64_t step = std::min(arena.step_bytes(), align_up(train.memory.most_live_bytes));
  for (size_t i = 0; i < places.size(); ++i) {
    if (places[i].region == Place::Region::kNone) continue;
    const ValueKind kind = train.graph.values[i].kind;
    const int64_t bytes = align_up(places[i].bytes);
    if (kind == ValueKind::kParameter) parts.parameters += bytes;
    if (kind == ValueKind::kState) parts.states += bytes;
    if (!roles.is_gradient(i)) continue;
    parts.gradients += bytes;
    if (places[i].region == Place::Region::kStep) step -= bytes;
  }
  parts.communication = std::min(step, most_at_once(places, roles.communication()));
  parts.activations = step - parts.communication;
  parts.other = arena.total_bytes() - parts.total();
  return parts;
}

std::set<int> communication_values(const Plan& plan) { return Roles(plan).communication(); }

}  // namespace weft
