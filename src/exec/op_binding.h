// exec/op_binding.h: what the executor knows about one operation (exec/ops/).
//
// A binding belongs to a rule of graph/ops/ and defines every part, as a rule does. The build
// generates the table of all from the files of exec/ops/: each defines add_<file>_bindings.
#pragma once

#include <vector>

#include "exec/memory_ops.h"
#include "exec/mesh.h"
#include "exec/step_scalars.h"
#include "exec/view.h"
#include "exec/wire_item.h"
#include "graph/op_rule.h"

namespace weft {

class DeviceFinish;
struct UpdateInputs;    // exec/update_binding.h
struct UpdateListArgs;  // kernel/device_kernels.h

// An optimizer's update: over one parameter, on the CPU; over all of one set of types, on a GPU.
struct UpdateForms {
  void (*one)(const Kernels&, const Context&, const UpdateInputs&, double grad_scale,
              const OptimizerScalars&) = nullptr;
  void (*DeviceKernels::*all)(const Context&, const UpdateListArgs&) = nullptr;
};

// While a plan is made.
struct PlanContext {
  const View& view;  // without real addresses
  const Kernels& kernels;
  int num_threads;
  Mesh mesh;  // without groups
};

// While calls are bound. What it points to must outlive them.
struct BindContext {
  View view;
  const Kernels& kernels;
  const Context* context;        // of the node
  const Context* async_context;  // of nodes on the communication lane
  Mesh mesh;
  Device* device;
  DeviceFinish* finish;  // on a GPU, where the plan has a finish list
  MemoryOps memory_ops(const Node& node) const {
    return {&kernels, node.run.async ? async_context : context, device};
  }
};

// Whether a writer of parameter gradients accumulates.
struct Accumulates {
  bool first_writer, adds_to_earlier_passes;
  bool operator()(const StepScalars& s) const {
    return !first_writer || (adds_to_earlier_passes && s.pass > 0);
  }
};
Accumulates accumulates(const View& view, const Node& node);

// What a node costs a GPU: its products at the speed of a unit, and the bytes that it moves.
struct Cost {
  enum class Unit { kProducts, kAttention, kAttentionPacked, kAttentionBuiltin, kAttentionDropout };
  Unit unit = Unit::kProducts;
  double flops = 0, bytes = 0;
};

struct OpBinding {
  Op op;
  size_t (*workspace)(const PlanContext&, const Node&) = nullptr;
  NodeCall (*bind)(const BindContext&, const Node&) = nullptr;
  // UserError where the node's extents exceed the GPU kernels' limits.
  void (*check_device)(const View&, const Node&) = nullptr;
  Cost (*cost)(const View&, const Node&) = nullptr;
  // Adds what one call moves between ranks.
  void (*wire)(const PlanContext&, const Node&, std::vector<WireItem>*) = nullptr;
  // Changes the node to the form that a GPU needs.
  void (*suit_device)(Node*) = nullptr;
  // For a plan of shorter rows that shares the memory of the longest ones' plan.
  void (*shorten)(const Graph& longest, const Node& in_longest, Node*) = nullptr;
  UpdateForms update = {};  // of updates, and of nothing else
};

// For parts that do not apply.
size_t no_workspace(const PlanContext& context, const Node& node);
void no_device_limits(const View& view, const Node& node);
Cost cost_of_products(const View& view, const Node& node);  // only its flops
Cost cost_of_bytes(const View& view, const Node& node);     // every value read or written once
Cost no_cost(const View& view, const Node& node);
void no_wire(const PlanContext& context, const Node& node, std::vector<WireItem>* wire);
void suits_device(Node* node);
void no_shortening(const Graph& longest, const Node& in_longest, Node* node);

// For check_device.
void check_device_extent(int64_t got, int64_t most, const char* what, const char* hint);

using Bindings = std::vector<OpBinding>;
// BugError where the operation has none, or an incomplete one.
const OpBinding& binding_of(Op op);
const Bindings& all_bindings();

}  // namespace weft
