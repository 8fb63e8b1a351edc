// exec/bind_collectives.cpp: which group, which bytes, and what is added afterwards.
#include "exec/bind_collectives.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "exec/slots.h"

namespace weft {
namespace {

// A leaf that arrived meets the accumulators; it may be written over.
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

// Rows of n columns: out = round(sum + bias). out may be sum itself: stretches are taken in order
// and never grow, and each is whole in registers or on the stack before it is written.
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

NodeCall bind_tensor_sum(const View& v, const Node& node, const Mesh& mesh, const MemoryOps& ops) {
  const Value& in = v.value(node.inputs[0]);
  const Value& out = v.value(node.outputs[0]);
  Comm* group = node.attr.copies > 0 ? mesh.copies[node.attr.copy_group] : mesh.tensor;
  ensure(group != nullptr, "an all_reduce over an axis of one rank");
  void* sum = v.at(node.inputs[0]);
  void* to = v.at(node.outputs[0]);
  const void* bias = node.attr.has_bias ? v.at(node.inputs[1]) : nullptr;
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

NodeCall bind_reduce_scatter(const View& v, const Node& node, const Mesh& mesh,
                             const MemoryOps& ops) {
  const Dtype dtype = v.value(node.inputs[0]).dtype;
  const int64_t count = node.attr.slot_stride / mesh.dp, size = dtype_bytes(dtype);
  std::byte* in = v.at<std::byte>(node.inputs[0]);
  void* shard = v.at(node.outputs[0]);
  Comm* group = mesh.data;
  return [=, last_only = node.attr.last_pass_only](const StepScalars& s) {
    if (last_only || s.pass == 0) return group->reduce_scatter(in, shard, count, dtype);
    // Passes after the first: the sum of this one takes the place of this rank's own addend.
    std::byte* own = in + group->rank() * count * size;
    group->reduce_scatter(in, own, count, dtype);
    ops.add(static_cast<float*>(shard), reinterpret_cast<const float*>(own), count);
  };
}

// Leaf r of the pass comes from rank r: in the order of the global batch.
NodeCall bind_all_to_all(const View& v, const Node& node, const Mesh& mesh, const MemoryOps& ops) {
  const int64_t count = node.attr.slot_stride;
  const void* in = v.at(node.inputs[0]);
  float* slots = v.at<float>(node.outputs[0]);
  float* leaves = v.at<float>(node.outputs[1]);
  Comm* group = mesh.data;
  return [=, group_leaves = node.attr.group_leaves](const StepScalars& s) {
    group->all_to_all(in, leaves, count * 4);
    for (int r = 0; r < group->size(); ++r) {
      const int64_t leaf = int64_t{s.pass} * group->size() + r;
      add_leaf(ops, leaves + r * count, slots, count, count, next_slot(leaf, group_leaves));
    }
  };
}

NodeCall bind_all_gather(const View& v, const Node& node, const Mesh& mesh) {
  const int64_t bytes = value_bytes(v.value(node.outputs[0])) / mesh.dp;
  std::byte* out = v.at<std::byte>(node.outputs[0]);
  const bool in_place = node.inputs[0] == node.outputs[0];
  const std::byte* in = v.at<std::byte>(node.inputs[0]);
  Comm* group = mesh.data;
  return [=](const StepScalars&) {
    group->all_gather(in_place ? out + group->rank() * bytes : in, out, bytes);
  };
}

}  // namespace

NodeCall bind_collective(const View& v, const Node& node, const Mesh& mesh, const MemoryOps& ops) {
  if (node.op == Op::kAllReduce && node.attr.axis == Axis::kTensor) {
    return bind_tensor_sum(v, node, mesh, ops);
  }
  ensure(mesh.data != nullptr, "a collective over an axis of one rank");
  switch (node.op) {
    case Op::kReduceScatter:
      return bind_reduce_scatter(v, node, mesh, ops);
    case Op::kAllToAll:
      return bind_all_to_all(v, node, mesh, ops);
    case Op::kAllGather:
      return bind_all_gather(v, node, mesh);
    default:
      break;
  }
  ensure(node.op == Op::kAllReduce, fmt::format("{} is no collective", op_name(node.op)));
  return [group = mesh.data, data = v.at(node.inputs[0]), n = node.attr.slot_stride,
          dtype = v.value(node.inputs[0]).dtype](const StepScalars&) {
    group->all_reduce(data, n, dtype);
  };
}

NodeCall bind_accumulate(const View& v, const Node& node, const MemoryOps& ops) {
  float* leaf = v.at<float>(node.inputs[0]);
  float* slots = v.at<float>(node.outputs[0]);
  const int64_t n = num_elements(v.value(node.inputs[0]).shape), stride = node.attr.slot_stride;
  return [=, group_leaves = node.attr.group_leaves](const StepScalars& s) {
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

}  // namespace weft
