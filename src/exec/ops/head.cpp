// exec/ops/head.cpp: the head with its loss (exec/head.h), and its logits alone.
#include "graph/ops/head.h"

#include <algorithm>

#include "exec/head.h"
#include "exec/op_binding.h"

namespace weft {
namespace {

size_t head_loss_workspace(const PlanContext& p, const Node& node) {
  const HeadArgs args = head_args(p.view, node, p.mesh);
  return head_workspace(p.kernels, args, p.num_threads);
}

NodeCall bind_with(const BindContext& b, const Node& node, const Accumulates& adds) {
  const Kernels& k = b.kernels;
  const HeadArgs args = head_args(b.view, node, b.mesh);
  return [adds, head = Head(k, args, *b.context)](const StepScalars& s) { head.run(adds(s)); };
}

NodeCall bind_head(const BindContext& b, const Node& node) {
  return bind_with(b, node, {true, false});
}

NodeCall bind_head_grad(const BindContext& b, const Node& node) {
  return bind_with(b, node, accumulates(b.view, node));
}

size_t logits_workspace(const PlanContext& p, const Node& node) {
  return head_logits_workspace(p.kernels, head_logits_args(p.view, node), p.num_threads);
}

NodeCall bind_logits(const BindContext& b, const Node& node) {
  return [a = head_logits_args(b.view, node), &k = b.kernels, c = b.context](const StepScalars&) {
    run_head_logits(k, *c, a);
  };
}

// The softmax reads the logits twice and writes their gradient.
Cost head_cost(const View& v, const Node& node) {
  const Value& x = v.value(node.inputs[0]);
  double columns = 0;
  for (int p = 0; p < node.as<HeadAttr>().parts; ++p)
    columns += static_cast<double>(v.value(node.inputs[1 + static_cast<size_t>(p)]).shape[0]);
  const double logits = static_cast<double>(v.tokens(node.inputs[0])) * columns *
                        static_cast<double>(dtype_bytes(x.dtype));
  return {Cost::Unit::kProducts, node_flops(v.graph, node), 3 * logits};
}

// One all_gather per chunk of tokens: for each token a maximum and a sum per leaf, and the target's
// logit, in fp64.
void wire(const PlanContext& p, const Node& node, std::vector<WireItem>* items) {
  if (p.mesh.tp == 1) return;
  const HeadAttr& attr = node.as<HeadAttr>();
  const int64_t tokens = p.view.tokens(node.inputs[0]);
  const int64_t chunk = std::min(tokens, attr.chunk_rows);
  add_wire(items, {CommOp::kAllGather, Axis::kTensor, p.mesh.tp, (tokens + chunk - 1) / chunk,
                   tokens * (2 * attr.parts + 1) * 8});
}

void suit_device(Node* node) { node->edit<HeadAttr>().chunk_rows = kDeviceHeadRows; }

}  // namespace

void add_head_bindings(Bindings* bindings) {
  bindings->push_back({&kHeadLossOp, head_loss_workspace, bind_head, no_device_limits, head_cost,
                       wire, suit_device, no_shortening});
  bindings->push_back({&kHeadLossGradOp, head_loss_workspace, bind_head_grad, no_device_limits,
                       head_cost, wire, suit_device, no_shortening});
  bindings->push_back({&kHeadLogitsOp, logits_workspace, bind_logits, no_device_limits,
                       cost_of_products, no_wire, suits_device, no_shortening});
}

}  // namespace weft
