// optim/updates.cpp: norm, clip factor and the updates of all parameters.
#include "optim/updates.h"

#include <algorithm>

#include "base/error.h"
#include "graph/ops/collectives.h"
#include "graph/ops/grad_norm.h"
#include "graph/update_rule.h"
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

// Which elements of a state belong to these of its parameter. ZeRO's shards begin at whole blocks,
// and tensor-parallel cuts must do so too.
Portion state_portion(const Portion& p, const StateSpec& spec) {
  Portion s = p;
  s.name += spec.suffix;
  if (spec.block == 1) return s;
  ensure(kNormCell % spec.block == 0, s.name + ": blocks must divide the cells at which ZeRO cuts");
  const auto in_blocks = [&](int64_t elements) { return (elements + spec.block - 1) / spec.block; };
  s.shape = state_shape(p.shape, spec.block);
  s.begin = in_blocks(p.begin);
  s.end = in_blocks(p.end);
  if (p.shape.empty() || p.shape.back() % spec.block != 0) {  // flat
    ensure(p.extent == p.shape, s.name + ": a cut of the tensor crosses blocks of its state");
    s.offset = {0};
    s.extent = s.shape;
    return s;
  }
  ensure(p.offset.back() % spec.block == 0 && p.extent.back() % spec.block == 0,
         s.name + ": a cut of the tensor crosses blocks of its state");
  s.offset.back() /= spec.block;
  s.extent.back() /= spec.block;
  return s;
}

class Updates {
 public:
  Updates(Graph* graph, const Optimizer& optimizer, const OptimizerConfig& config,
          const UpdateOptions& options)
      : graph_(graph),
        optimizer_(optimizer),
        config_(config),
        options_(options),
        states_(optimizer.states(config)) {}

  void add(const Update& u, Ref scale) {
    const Value p = (*graph_)[u.parameter];
    UpdateAttr attr{.decay = config_.decay_all || portion_of(p).shape.size() > 1, .blocks = {}};
    std::vector<Ref> inputs = {u.parameter, u.gradient, scale};
    for (const StateSpec& spec : states_) {
      const bool is_like = spec.type == StateSpec::Type::kLikeParameter && !options_.master_weights;
      inputs.push_back(add_state(u, spec, is_like ? p.dtype : Dtype::kF32));
      attr.blocks.push_back(spec.block);
    }
    if (options_.master_weights) inputs.push_back(add_state(u, {"#master"}, Dtype::kF32));
    graph_->finish.push_back({optimizer_.update, std::move(inputs), {}, std::move(attr), -1});
  }

 private:
  Ref add_state(const Update& u, const StateSpec& spec, Dtype dtype) {
    const Value& p = (*graph_)[u.parameter];
    Value v{p.name + spec.suffix, state_shape(p.shape, spec.block), dtype, ValueKind::kState,
            u.parameter};
    v.portion = state_portion(portion_of(p), spec);
    v.is_saved = options_.is_sharded ? (*graph_)[u.gradient].is_counted : p.is_saved;
    return graph_->add(std::move(v));
  }

  Graph* graph_;
  const Optimizer& optimizer_;
  const OptimizerConfig& config_;
  const UpdateOptions& options_;
  std::vector<StateSpec> states_;
};

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

void add_updates(Graph* graph, const Optimizer& optimizer, const OptimizerConfig& config,
                 const UpdateOptions& options) {
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
  const NormAttr attr{options.sum_tensor, options.sum_data, options.clips};
  Node sum{&kNormOp, partials, {norm, scale}, attr, -1};
  if (options.scales_loss) sum.outputs.push_back(add_loss_scale(graph));
  graph->finish.push_back(std::move(sum));
  Updates nodes(graph, optimizer, config, options);
  for (const Update& u : updates) nodes.add(u, scale);
}

}  // namespace weft
