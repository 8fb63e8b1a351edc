// optim/adamw.cpp: norm, clip factor and AdamW over all gradients.
#include "optim/adamw.h"

namespace weft {
namespace {

constexpr int64_t kCell = 256;  // elements whose squares make one partial (kernel/kernels.h)

}  // namespace

void add_adamw(Graph* graph, const OptimizerOptions& options) {
  const std::vector<Ref> gradients = graph->of_kind(ValueKind::kGradient);
  std::vector<Ref> partials;
  for (Ref g : gradients) {
    const int64_t cells = (num_elements((*graph)[g].shape) + kCell - 1) / kCell;
    const std::string name = (*graph)[(*graph)[g].parameter].name + "#squares";
    Ref p = graph->add({name, {cells}, Dtype::kF64, ValueKind::kActivation});
    graph->finish.push_back({Op::kSquares, {g}, {p}, {}, -1});
    partials.push_back(p);
  }
  Ref norm = graph->add({"grad_norm", {1}, Dtype::kF64, ValueKind::kResult});
  Ref scale = graph->add({"grad_scale", {1}, Dtype::kF32, ValueKind::kResult});
  graph->finish.push_back({Op::kNorm, partials, {norm, scale}, {}, -1});
  for (Ref g : gradients) {
    const Ref parameter = (*graph)[g].parameter;
    const Value p = (*graph)[parameter];
    const auto state = [&](const char* suffix, Dtype dtype) {
      return graph->add({p.name + suffix, p.shape, dtype, ValueKind::kState, parameter});
    };
    std::vector<Ref> inputs = {parameter, g, scale, state("#m", options.state_dtype),
                               state("#v", options.state_dtype)};
    if (options.master_weights) inputs.push_back(state("#master", Dtype::kF32));
    Node update{Op::kAdamw, std::move(inputs), {}, {}, -1};
    update.attr.decay = options.decay_all || p.shape.size() > 1;
    graph->finish.push_back(std::move(update));
  }
}

}  // namespace weft
