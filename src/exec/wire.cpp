// exec/wire.cpp: the bytes of every node, as its binding counts them.
#include "exec/wire.h"

#include "exec/op_binding.h"

namespace weft {
namespace {

void add_node(const PlanContext& context, const Node& node, int64_t times,
              std::vector<WireItem>* wire) {
  std::vector<WireItem> items;
  binding_of(node.op).wire(context, node, &items);
  for (WireItem item : items) {
    item.calls *= times;
    item.bytes *= times;
    add_wire(wire, item);
  }
}

}  // namespace

void add_wire(std::vector<WireItem>* wire, const WireItem& item) {
  for (WireItem& known : *wire) {
    if (known.op != item.op || known.axis != item.axis || known.ranks != item.ranks) continue;
    known.calls += item.calls;
    known.bytes += item.bytes;
    return;
  }
  wire->push_back(item);
}

std::vector<WireItem> wire_of(const Plan& plan) {
  const Nowhere nowhere(plan.graph);
  const PlanContext context = plan_context(plan.options, nowhere.view());
  std::vector<WireItem> wire;
  for (const Node& node : plan.graph.pass) {
    add_node(context, node, node.run.last_pass_only ? 1 : plan.options.num_passes, &wire);
  }
  for (const Node& node : plan.graph.finish) add_node(context, node, 1, &wire);
  return wire;
}

int64_t received_bytes(const WireItem& item) {
  const int64_t others = item.bytes - item.bytes / item.ranks;
  switch (item.op) {
    case CommOp::kAllGather:
      return item.bytes * (item.ranks - 1);
    case CommOp::kAllReduce:  // a reduce_scatter, then an all_gather of the parts
      return 2 * others;
    default:
      return others;
  }
}

}  // namespace weft
