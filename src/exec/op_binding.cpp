// exec/op_binding.cpp: the table, and bindings that say nothing.
#include "exec/op_binding.h"

#include <optional>
#include <set>
#include <unordered_map>

#include "base/error.h"

namespace weft {

void add_all_bindings(Bindings* bindings);  // made by the build

namespace {

struct Table {
  Bindings all;
  std::unordered_map<Op, const OpBinding*> by_op;

  Table() {
    add_all_bindings(&all);
    for (const OpBinding& b : all) {
      ensure(b.op && b.workspace && b.bind && b.check_device && b.cost && b.wire && b.suit_device &&
                 b.shorten,
             fmt::format("[{}] its binding is not complete", b.op ? op_name(b.op) : "?"));
      ensure(by_op.emplace(b.op, &b).second, fmt::format("[{}] has two bindings", op_name(b.op)));
    }
  }
};

const Table& table() {
  static const Table made;
  return made;
}

}  // namespace

const Bindings& all_bindings() { return table().all; }

const OpBinding& binding_of(Op op) {
  const auto found = table().by_op.find(op);
  if (found == table().by_op.end()) throw BugError(fmt::format("[{}] has no binding", op_name(op)));
  return *found->second;
}

// Gradients that are made anew every pass (leaves, buckets that are cut at once) are stored.
Accumulates accumulates(const View& view, const Node& node) {
  std::optional<bool> adds;
  for (Ref out : node.outputs) {
    if (!out || !view.value(out).parameter) continue;  // of a frozen parameter, or an activation
    const Ref root = view.graph.storage_of(out).root;
    const bool is_kept = view.value(root).kind == ValueKind::kGradient;
    ensure(adds.value_or(is_kept) == is_kept,
           "one node writes gradients that are kept, and others");
    adds = is_kept;
  }
  return {node.run.first_writer, adds.value_or(false)};
}

size_t no_workspace(const PlanContext&, const Node&) { return 0; }

void no_device_limits(const View&, const Node&) {}

Cost cost_of_products(const View& view, const Node& node) {
  return {Cost::Unit::kProducts, node_flops(view.graph, node), 0};
}

Cost cost_of_bytes(const View& view, const Node& node) {
  std::set<int> seen;
  double bytes = 0;
  for (const std::vector<Ref>* refs : {&node.inputs, &node.outputs}) {
    for (const Ref r : *refs) {
      if (r && (seen.insert(r.id).second || refs == &node.outputs))
        bytes += static_cast<double>(value_bytes(view.value(r)));
    }
  }
  return {Cost::Unit::kProducts, 0, bytes};
}

Cost no_cost(const View&, const Node&) { return {}; }

void no_wire(const PlanContext&, const Node&, std::vector<WireItem>*) {}

void suits_device(Node*) {}

void no_shortening(const Graph&, const Node&, Node*) {}

void check_device_extent(int64_t got, int64_t most, const char* what, const char* hint) {
  if (got > most)
    throw UserError(fmt::format("{}: {}; on a GPU it is {} at most", what, got, most), hint);
}

}  // namespace weft
