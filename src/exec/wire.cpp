// exec/wire.cpp: the bytes of every collective, as the executor binds them.
#include "exec/wire.h"

#include <algorithm>

#include "base/error.h"
#include "base/exact_sum.h"

namespace weft {
namespace {

constexpr int64_t kSumBytes = ExactSum::kLimbs * int64_t{sizeof(int64_t)};

CommOp comm_op(Op op) {
  switch (op) {
    case Op::kAllReduce:
      return CommOp::kAllReduce;
    case Op::kReduceScatter:
      return CommOp::kReduceScatter;
    case Op::kAllGather:
      return CommOp::kAllGather;
    default:
      ensure(op == Op::kAllToAll, fmt::format("{} is no collective", op_name(op)));
      return CommOp::kAllToAll;
  }
}

// Of one call (exec/bind_collectives.cpp).
int64_t node_bytes(const Graph& graph, const Node& node, int dp) {
  const Value& in = graph[node.inputs[0]];
  const int64_t element = dtype_bytes(in.dtype);
  switch (node.op) {
    case Op::kAllGather:
      return value_bytes(graph[node.outputs[0]]) / dp;
    case Op::kAllToAll:
      return dp * node.attr.slot_stride * element;
    case Op::kReduceScatter:
      return node.attr.slot_stride * element;
    default:
      return node.attr.axis == Axis::kTensor ? value_bytes(in) : node.attr.slot_stride * element;
  }
}

// A chunk of tokens is one all_gather: of each token a maximum and a sum a leaf, and the target's
// logit, in fp64.
WireItem head_wire(const Graph& graph, const Node& node, int tp) {
  const Value& x = graph[node.inputs[0]];
  const int64_t tokens = num_elements(x.shape) / x.shape.back();
  const int64_t chunk = std::min(tokens, node.attr.chunk_rows);
  return {CommOp::kAllGather, Axis::kTensor, tp, (tokens + chunk - 1) / chunk,
          tokens * (2 * node.attr.parts + 1) * 8};
}

int group_size(const Node& node, int tp, int dp) {
  if (node.attr.axis == Axis::kData) return dp;
  return node.attr.copies > 0 ? node.attr.copies : tp;
}

void add_node(const Plan& plan, const Node& node, int64_t times, std::vector<WireItem>* wire) {
  const auto add = [&](WireItem item) {
    item.calls *= times;
    item.bytes *= times;
    add_wire(wire, item);
  };
  const int tp = plan.options.tp, dp = plan.options.dp;
  if (is_collective(node.op)) {
    add({comm_op(node.op), node.attr.axis, group_size(node, tp, dp), 1,
         node_bytes(plan.graph, node, dp)});
  } else if (node.op == Op::kHeadLoss || node.op == Op::kHeadLossGrad) {
    if (tp > 1) add(head_wire(plan.graph, node, tp));
  } else if (node.op == Op::kNorm) {
    if (node.attr.sum_tensor) add({CommOp::kAllReduce, Axis::kTensor, tp, 1, kSumBytes});
    if (node.attr.sum_data) add({CommOp::kAllReduce, Axis::kData, dp, 1, kSumBytes});
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
  std::vector<WireItem> wire;
  for (const Node& node : plan.graph.pass) {
    add_node(plan, node, node.attr.last_pass_only ? 1 : plan.options.num_passes, &wire);
  }
  for (const Node& node : plan.graph.finish) add_node(plan, node, 1, &wire);
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
