// exec/ops/linear.cpp: products (exec/products.h) and sums of columns as calls.
#include "graph/ops/linear.h"

#include "exec/op_binding.h"
#include "exec/products.h"

namespace weft {
namespace {

size_t linear_workspace(const PlanContext& p, const Node& node) {
  return products_workspace(p.kernels, make_products(p.view, node, nullptr), p.num_threads);
}

// The calls, and the context after the partial sums at the start of the workspace.
struct BoundProducts {
  std::vector<GemmArgs> calls;
  Context context;
};

BoundProducts bound(const BindContext& b, const Node& node) {
  const Context& c = *b.context;
  Products made = make_products(b.view, node, c.workspace);
  return {std::move(made.calls),
          {c.pool, c.workspace + made.partial_bytes,
           c.workspace_bytes - static_cast<size_t>(made.partial_bytes), c.stream}};
}

NodeCall bind_linear(const BindContext& b, const Node& node) {
  return [p = bound(b, node), &k = b.kernels](const StepScalars&) {
    for (const GemmArgs& a : p.calls) k.gemm(p.context, a);
  };
}

NodeCall bind_dw(const BindContext& b, const Node& node) {
  const NodeRun run = node.run;
  if (run.slots > 0) {
    return [p = bound(b, node), &k = b.kernels, run](const StepScalars& s) {
      for (const GemmArgs& a : p.calls)
        k.gemm(p.context, into_slots(a, s.pass, run.group_leaves, run.slot_stride));
    };
  }
  return
      [p = bound(b, node), &k = b.kernels, adds = accumulates(b.view, node)](const StepScalars& s) {
        for (GemmArgs a : p.calls) {
          a.accumulate = adds(s);
          k.gemm(p.context, a);
        }
      };
}

BiasBackwardArgs bias_args(const View& v, const Node& node) {
  const Ref dy = node.inputs[0];
  const LinearAttr& attr = node.as<LinearAttr>();
  BiasBackwardArgs a{};
  a.R = v.tokens(dy);
  a.N = v.value(dy).shape.back();
  a.dtype = v.value(dy).dtype;
  a.grad_dtype = v.value(node.outputs[0]).dtype;
  a.dy = v.at_column(dy, attr.column);
  a.count = attr.parts;
  for (int p = 0; p < a.count; ++p) {
    a.db[p] = v.at(node.outputs[static_cast<size_t>(p)]);
    a.cols[p] = v.value(node.outputs[static_cast<size_t>(p)]).shape[0];
  }
  return a;
}

size_t bias_workspace(const PlanContext& p, const Node& node) {
  return p.kernels.bias_backward_workspace(bias_args(p.view, node), p.num_threads);
}

NodeCall bind_bias(const BindContext& b, const Node& node) {
  return [a = bias_args(b.view, node), adds = accumulates(b.view, node), &k = b.kernels,
          c = b.context](const StepScalars& s) mutable {
    a.accumulate = adds(s);
    k.bias_backward(*c, a);
  };
}

}  // namespace

void add_linear_bindings(Bindings* bindings) {
  const auto add = [&](Op op, auto bind_op) {
    bindings->push_back({op, linear_workspace, bind_op, no_device_limits, cost_of_products, no_wire,
                         suits_device, no_shortening});
  };
  add(&kLinearOp, bind_linear);
  add(&kLinearDxOp, bind_linear);
  add(&kLinearDwOp, bind_dw);
  bindings->push_back({&kBiasGradOp, bias_workspace, bind_bias, no_device_limits, cost_of_bytes,
                       no_wire, suits_device, no_shortening});
}

}  // namespace weft
