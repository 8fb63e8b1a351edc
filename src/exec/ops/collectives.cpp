// exec/ops/collectives.cpp: which group, which bytes, and what is added afterwards.
#include "graph/ops/collectives.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "exec/op_binding.h"
#include "exec/slots.h"

namespace weft {
namespace {

// Adds an arrived leaf to the accumulators; it may be overwritten.
void add_leaf(const MemoryOps& ops, float* leaf, float* slots, int64_t stride, int64_t n,
              const SlotStep& step) {
  for (int i = 0; i < step.count; ++i) ops.add(leaf, slots + (step.first - i) * stride, n);
  float* to = slots + step.slot * stride;
  if (step.adds_slot) {
    ops.add(to, leaf, n);
  } else {
    ops.copy(to, leaf, n * int64_t{sizeof(float)});
  }
}

// Rows of n columns: out = round(sum + bias). out may be sum itself: chunks are processed in order
// and never grow, and each is completely in registers or on the stack before it is written.
void add_bias_and_round(const void* sum, Dtype sum_dtype, const void* bias, void* out, Dtype dtype,
                        int64_t rows, int64_t columns) {
  constexpr int64_t kStretch = 256;
  float values[kStretch], added[kStretch];
  alignas(8) std::byte rounded[kStretch * 8];
  const int64_t from_size = dtype_bytes(sum_dtype), size = dtype_bytes(dtype);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; c += kStretch) {
      const int64_t n = std::min(kStretch, columns - c), at = r * columns + c;
      convert_elements(static_cast<const std::byte*>(sum) + at * from_size, sum_dtype, values,
                       Dtype::kF32, n);
      if (bias) {
        convert_elements(static_cast<const std::byte*>(bias) + c * size, dtype, added, Dtype::kF32,
                         n);
        for (int64_t i = 0; i < n; ++i) values[i] += added[i];
      }
      convert_elements(values, Dtype::kF32, rounded, dtype, n);
      std::memcpy(static_cast<std::byte*>(out) + at * size, rounded, static_cast<size_t>(n * size));
    }
  }
}

NodeCall bind_tensor_sum(const BindContext& b, const Node& node) {
  const View& v = b.view;
  const MemoryOps ops = b.memory_ops(node);
  const CollectiveAttr& attr = node.as<CollectiveAttr>();
  const Value& in = v.value(node.inputs[0]);
  const Value& out = v.value(node.outputs[0]);
  const bool is_whole_axis = attr.copies == 0 || attr.copies == b.mesh.tp;
  ensure(is_whole_axis || attr.copy_group < std::ssize(b.mesh.copies), "copies of no group");
  Comm* group = is_whole_axis ? b.mesh.tensor : b.mesh.copies[attr.copy_group];
  ensure(group != nullptr, "an all_reduce over an axis of one rank");
  void* sum = v.at(node.inputs[0]);
  void* to = v.at(node.outputs[0]);
  const void* bias = attr.has_bias ? v.at(node.inputs[1]) : nullptr;
  const int64_t n = num_elements(in.shape), columns = in.shape.back();
  const Dtype from = in.dtype, dtype = out.dtype;
  const bool is_done = sum == to && from == dtype && !bias;
  return [=](const StepScalars&) {
    group->all_reduce(sum, n, from);
    if (is_done) return;
    if (!bias && from == dtype) {
      ops.copy(to, sum, n * dtype_bytes(dtype));
    } else if (ops.kernels->device) {
      ops.kernels->device->round_sum(*ops.context,
                                     {n / columns, columns, from, dtype, sum, bias, to});
    } else {
      add_bias_and_round(sum, from, bias, to, dtype, n / columns, columns);
    }
  };
}

Comm* data_group(const BindContext& b) {
  ensure(b.mesh.data != nullptr, "a collective over an axis of one rank");
  return b.mesh.data;
}

NodeCall bind_all_reduce(const BindContext& b, const Node& node) {
  if (node.as<CollectiveAttr>().axis == Axis::kTensor) return bind_tensor_sum(b, node);
  return [group = data_group(b), data = b.view.at(node.inputs[0]), n = node.run.slot_stride,
          dtype = b.view.value(node.inputs[0]).dtype](const StepScalars&) {
    group->all_reduce(data, n, dtype);
  };
}

NodeCall bind_reduce_scatter(const BindContext& b, const Node& node) {
  const View& v = b.view;
  const MemoryOps ops = b.memory_ops(node);
  const Dtype dtype = v.value(node.inputs[0]).dtype;
  const int64_t count = node.run.slot_stride / b.mesh.dp, size = dtype_bytes(dtype);
  std::byte* in = v.at<std::byte>(node.inputs[0]);
  void* shard = v.at(node.outputs[0]);
  Comm* group = data_group(b);
  return [=, last_only = node.run.last_pass_only](const StepScalars& s) {
    if (last_only || s.pass == 0) return group->reduce_scatter(in, shard, count, dtype);
    // Passes after the first: this pass's sum overwrites this rank's own addend.
    std::byte* own = in + group->rank() * count * size;
    group->reduce_scatter(in, own, count, dtype);
    ops.add(static_cast<float*>(shard), reinterpret_cast<const float*>(own), count);
  };
}

// Leaf r of the pass comes from rank r: in the order of the global batch.
NodeCall bind_all_to_all(const BindContext& b, const Node& node) {
  const View& v = b.view;
  const MemoryOps ops = b.memory_ops(node);
  const int64_t count = node.run.slot_stride;
  const void* in = v.at(node.inputs[0]);
  float* slots = v.at<float>(node.outputs[0]);
  float* leaves = v.at<float>(node.outputs[1]);
  Comm* group = data_group(b);
  return [=, group_leaves = node.run.group_leaves](const StepScalars& s) {
    group->all_to_all(in, leaves, count * 4);
    for (int r = 0; r < group->size(); ++r) {
      const int64_t leaf = int64_t{s.pass} * group->size() + r;
      add_leaf(ops, leaves + r * count, slots, count, count, next_slot(leaf, group_leaves));
    }
  };
}

NodeCall bind_all_gather(const BindContext& b, const Node& node) {
  const View& v = b.view;
  const int64_t bytes = value_bytes(v.value(node.outputs[0])) / b.mesh.dp;
  std::byte* out = v.at<std::byte>(node.outputs[0]);
  const bool in_place = node.inputs[0] == node.outputs[0];
  const std::byte* in = v.at<std::byte>(node.inputs[0]);
  Comm* group = data_group(b);
  return [=](const StepScalars&) {
    group->all_gather(in_place ? out + group->rank() * bytes : in, out, bytes);
  };
}

NodeCall bind_accumulate(const BindContext& b, const Node& node) {
  const View& v = b.view;
  const MemoryOps ops = b.memory_ops(node);
  float* leaf = v.at<float>(node.inputs[0]);
  float* slots = v.at<float>(node.outputs[0]);
  const int64_t n = num_elements(v.value(node.inputs[0]).shape), stride = node.run.slot_stride;
  return [=, group_leaves = node.run.group_leaves](const StepScalars& s) {
    const Kernels& kernels = *ops.kernels;
    const Context* context = ops.context;
    const SlotStep step = next_slot(s.pass, group_leaves);
    for (int i = 0; i < step.count; ++i) {
      const float* addend = slots + (step.first - i) * stride;
      kernels.add(*context, {n, Dtype::kF32, leaf, addend, leaf});
    }
    float* to = slots + step.slot * stride;
    if (step.adds_slot) {
      kernels.add(*context, {n, Dtype::kF32, leaf, to, to});
    } else {
      ops.copy(to, leaf, n * int64_t{sizeof(float)});
    }
  };
}

// ---------------------------------------------------------------- bytes, as the calls above
void add_data_wire(const PlanContext& p, CommOp op, int64_t bytes, std::vector<WireItem>* items) {
  add_wire(items, {op, Axis::kData, p.mesh.dp, 1, bytes});
}

int64_t slot_bytes(const PlanContext& p, const Node& node) {
  return node.run.slot_stride * dtype_bytes(p.view.value(node.inputs[0]).dtype);
}

void wire_all_reduce(const PlanContext& p, const Node& node, std::vector<WireItem>* items) {
  const CollectiveAttr& attr = node.as<CollectiveAttr>();
  if (attr.axis == Axis::kData)
    return add_data_wire(p, CommOp::kAllReduce, slot_bytes(p, node), items);
  add_wire(items, {CommOp::kAllReduce, Axis::kTensor, attr.copies > 0 ? attr.copies : p.mesh.tp, 1,
                   value_bytes(p.view.value(node.inputs[0]))});
}

void wire_reduce_scatter(const PlanContext& p, const Node& node, std::vector<WireItem>* items) {
  add_data_wire(p, CommOp::kReduceScatter, slot_bytes(p, node), items);
}

void wire_all_gather(const PlanContext& p, const Node& node, std::vector<WireItem>* items) {
  add_data_wire(p, CommOp::kAllGather, value_bytes(p.view.value(node.outputs[0])) / p.mesh.dp,
                items);
}

void wire_all_to_all(const PlanContext& p, const Node& node, std::vector<WireItem>* items) {
  add_data_wire(p, CommOp::kAllToAll, p.mesh.dp * slot_bytes(p, node), items);
}

}  // namespace

void add_collectives_bindings(Bindings* bindings) {
  const auto add = [&](Op op, auto bind, auto wire) {
    bindings->push_back({op, no_workspace, bind, no_device_limits, cost_of_bytes, wire,
                         suits_device, no_shortening});
  };
  add(&kAllReduceOp, bind_all_reduce, wire_all_reduce);
  add(&kReduceScatterOp, bind_reduce_scatter, wire_reduce_scatter);
  add(&kAllGatherOp, bind_all_gather, wire_all_gather);
  add(&kAllToAllOp, bind_all_to_all, wire_all_to_all);
  add(&kAccumulateOp, bind_accumulate, no_wire);
}

}  // namespace weft
