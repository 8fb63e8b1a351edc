// optim/adamw.cpp: norm, clip factor and AdamW over all gradients.
#include "optim/adamw.h"

#include <algorithm>

#include "graph/ops/adamw.h"
#include "graph/ops/collectives.h"
#include "graph/ops/grad_norm.h"
#include "tensor/cell.h"
#include "tensor/loss_scale.h"
#include "tensor/names.h"

namespace weft {
namespace {

// Copies of one parameter on neighbouring ranks: their gradients are addends.
void add_copy_sums(Graph* graph) {
  for (const Update& u : graph->updates) {
    const Value& gradient = (*graph)[u.gradient];
    if (gradient.copies == 1) continue;
    const CollectiveAttr attr{.copies = gradient.copies,
                              .copy_group = std::max(0, gradient.copy_group)};
    graph->finish.push_back({&kAllReduceOp, {u.gradient}, {u.gradient}, attr, -1});
  }
}

void add_update(Graph* graph, const Update& u, Ref scale, const OptimizerOptions& options) {
  const Value p = (*graph)[u.parameter];
  const auto state = [&](const char* suffix, Dtype dtype) {
    Value v{p.name + suffix, p.shape, dtype, ValueKind::kState, u.parameter};
    v.portion = portion_of(p);
    v.portion->name += suffix;
    v.is_saved = options.is_sharded ? (*graph)[u.gradient].is_counted : p.is_saved;
    return graph->add(std::move(v));
  };
  std::vector<Ref> inputs = {u.parameter, u.gradient, scale, state("#m", options.state_dtype),
                             state("#v", options.state_dtype)};
  if (options.master_weights) inputs.push_back(state("#master", Dtype::kF32));
  const AdamwAttr attr{.decay = options.decay_all || portion_of(p).shape.size() > 1};
  graph->finish.push_back({&kAdamwOp, std::move(inputs), {}, attr, -1});
}

// One for all heads.
Ref add_loss_scale(Graph* graph) {
  const Ref scale =
      graph->add({names::kLossScale, {kLossScaleWords}, Dtype::kI32, ValueKind::kResult});
  for (Node& node : graph->pass) {
    if (node.op->traits.begins_backward) node.inputs.push_back(scale);
  }
  return scale;
}

}  // namespace

void add_adamw(Graph* graph, const OptimizerOptions& options) {
  const std::vector<Update> updates = graph->updates;
  add_copy_sums(graph);
  std::vector<Ref> partials;
  for (const Update& u : updates) {
    if (!(*graph)[u.gradient].is_counted) continue;
    const int64_t cells = (num_elements((*graph)[u.gradient].shape) + kNormCell - 1) / kNormCell;
    const std::string name = (*graph)[u.parameter].name + "#squares";
    Ref p = graph->add({name, {cells}, Dtype::kF64, ValueKind::kActivation});
    graph->finish.push_back({&kSquaresOp, {u.gradient}, {p}, {}, -1});
    partials.push_back(p);
  }
  Ref norm = graph->add({names::kGradNorm, {1}, Dtype::kF64, ValueKind::kResult});
  Ref scale = graph->add({names::kGradScale, {1}, Dtype::kF32, ValueKind::kResult});
  Node sum{&kNormOp, partials, {norm, scale}, NormAttr{options.sum_tensor, options.sum_data}, -1};
  if (options.scales_loss) sum.outputs.push_back(add_loss_scale(graph));
  graph->finish.push_back(std::move(sum));
  for (const Update& u : updates) add_update(graph, u, scale, options);
}

}  // namespace weft
