// exec/memory_plan.cpp: lifetimes, sharing in place, then the largest values placed first, each at
// the lowest offset that no value of an overlapping lifetime covers.
#include "exec/memory_plan.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "exec/lowest_gap.h"
#include "graph/op_rule.h"

namespace weft {
namespace {

// Values that share one piece of memory.
struct Storage {
  int64_t bytes = 0;
  int first = std::numeric_limits<int>::max();
  int last = -1;
  int64_t offset = 0;
};

class Planner {
 public:
  Planner(const Graph& graph, int num_passes, const Schedule& pass, const Schedule& finish)
      : graph_(graph), num_passes_(num_passes) {
    add_list(graph.pass, pass);
    add_list(graph.finish, finish);
  }

  MemoryPlan run(const std::vector<int64_t>& scratch_bytes) {
    plan_.places.resize(graph_.values.size());
    place_persistent();
    find_last_readers();
    assign_storages();
    find_most_live();
    add_scratch(scratch_bytes);
    place_storages();
    record_places();
    return std::move(plan_);
  }

 private:
  void add_list(const std::vector<Node>& list, const Schedule& schedule) {
    const int begin = static_cast<int>(nodes_.size()), size = static_cast<int>(list.size());
    for (size_t t = 0; t < list.size(); ++t) {
      nodes_.push_back(&list[t]);
      const ScheduledNode& s = schedule.nodes[t];
      int end = static_cast<int>(t);
      if (s.is_async) {
        end = std::min(schedule.done_at[static_cast<size_t>(s.number)], size - 1);
      }
      ends_.push_back(begin + end);
    }
  }

  // The value that owns this one's memory: itself, unless it is a view.
  size_t root(Ref r) const { return static_cast<size_t>(graph_.storage_of(r).root.id); }

  bool is_step_value(const Value& v) const {
    if (v.base) return false;
    if (v.kind == ValueKind::kGradient) return num_passes_ == 1;
    return v.kind == ValueKind::kActivation;
  }

  void place_persistent() {
    for (size_t i = 0; i < graph_.values.size(); ++i) {
      const Value& v = graph_.values[i];
      if (v.base || is_step_value(v)) continue;
      Place& p = plan_.places[i];
      p = {Place::Region::kPersistent, plan_.persistent_bytes, value_bytes(v), 0, 0};
      plan_.persistent_bytes += align_up(p.bytes);
    }
  }

  void find_last_readers() {
    last_touch_.assign(graph_.values.size(), -1);
    for (size_t t = 0; t < nodes_.size(); ++t) {
      for (const auto* refs : {&nodes_[t]->inputs, &nodes_[t]->outputs}) {
        for (Ref r : *refs) {
          if (r) last_touch_[root(r)] = std::max(last_touch_[root(r)], ends_[t]);
        }
      }
    }
  }

  void assign_storages() {
    storage_of_.assign(graph_.values.size(), -1);
    for (size_t t = 0; t < nodes_.size(); ++t) {
      const Node& node = *nodes_[t];
      const std::vector<InPlace> rules = node.op->in_place(node);
      for (size_t k = 0; k < node.outputs.size(); ++k) {
        const Ref out = node.outputs[k];
        if (!out) continue;
        const Ref owner{static_cast<int>(root(out))};
        if (!is_step_value(graph_[owner])) continue;
        int& storage = storage_of_[root(out)];
        for (const InPlace& rule : rules) {
          if (storage >= 0 || k != rule.output) continue;
          if (owner == out) storage = shared_with_input(node, rule, out, static_cast<int>(t));
          ensure(!rule.must || storage >= 0,
                 fmt::format("{} must work in place", op_name(node.op)));
        }
        if (storage < 0) {
          storage = static_cast<int>(storages_.size());
          storages_.push_back(
              {align_up(value_bytes(graph_[owner])), static_cast<int>(t), static_cast<int>(t), 0});
        }
        Storage& s = storages_[static_cast<size_t>(storage)];
        s.last = std::max(s.last, last_touch_[root(out)]);
      }
    }
  }

  int shared_with_input(const Node& node, const InPlace& rule, Ref out, int t) const {
    for (size_t k : rule.inputs) {
      if (k >= node.inputs.size()) continue;
      const Ref in = node.inputs[k];
      const int storage = storage_of_[static_cast<size_t>(in.id)];
      if (storage < 0 || storages_[static_cast<size_t>(storage)].last > t) continue;
      if (storages_[static_cast<size_t>(storage)].bytes >= align_up(value_bytes(graph_[out])))
        return storage;
    }
    return -1;
  }

  void find_most_live() {
    std::vector<int64_t> change(nodes_.size() + 1, 0);
    for (const Storage& s : storages_) {
      change[static_cast<size_t>(s.first)] += s.bytes;
      change[static_cast<size_t>(s.last) + 1] -= s.bytes;
    }
    int64_t live = 0;
    for (int64_t bytes : change)
      plan_.most_live_bytes = std::max(plan_.most_live_bytes, live += bytes);
  }

  void add_scratch(const std::vector<int64_t>& scratch_bytes) {
    scratch_of_.assign(nodes_.size(), -1);
    for (size_t t = 0; t < scratch_bytes.size(); ++t) {
      if (scratch_bytes[t] == 0) continue;
      ensure(ends_[t] == static_cast<int>(t), "an async node has no scratch");
      scratch_of_[t] = static_cast<int>(storages_.size());
      storages_.push_back(
          {align_up(scratch_bytes[t]), static_cast<int>(t), static_cast<int>(t), 0});
    }
  }

  void place_storages() {
    std::vector<size_t> order(storages_.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return storages_[a].bytes > storages_[b].bytes; });
    LowestGap placed(static_cast<int>(nodes_.size()));
    for (size_t i : order) {
      Storage& s = storages_[i];
      s.offset = placed.find({0, s.bytes, s.first, s.last});
      plan_.step_bytes = std::max(plan_.step_bytes, s.offset + s.bytes);
      placed.add({s.offset, s.bytes, s.first, s.last});
    }
  }

  void record_places() {
    for (size_t v = 0; v < storage_of_.size(); ++v) {
      if (storage_of_[v] < 0) continue;
      const Storage& s = storages_[static_cast<size_t>(storage_of_[v])];
      plan_.places[v] = {Place::Region::kStep, s.offset, value_bytes(graph_.values[v]), s.first,
                         s.last};
    }
    plan_.scratch.resize(nodes_.size());
    for (size_t t = 0; t < nodes_.size(); ++t) {
      if (scratch_of_[t] < 0) continue;
      const Storage& s = storages_[static_cast<size_t>(scratch_of_[t])];
      plan_.scratch[t] = {Place::Region::kStep, s.offset, s.bytes, s.first, s.last};
    }
  }

  const Graph& graph_;
  int num_passes_;
  std::vector<const Node*> nodes_;
  std::vector<int> ends_;                     // by node: where in the list it is certainly done
  std::vector<int> last_touch_, storage_of_;  // by value
  std::vector<int> scratch_of_;               // by node
  std::vector<Storage> storages_;
  MemoryPlan plan_;
};

}  // namespace

MemoryPlan plan_memory(const Graph& graph, int num_passes, const Schedule& pass,
                       const Schedule& finish, const std::vector<int64_t>& scratch_bytes) {
  return Planner(graph, num_passes, pass, finish).run(scratch_bytes);
}

MemoryPlan plan_memory(const Graph& graph, int num_passes) {
  return plan_memory(graph, num_passes, make_schedule(graph, graph.pass),
                     make_schedule(graph, graph.finish), {});
}

}  // namespace weft
