// graph/gradients.cpp: which values need a gradient, and the sums of incoming gradients.
#include "graph/gradients.h"

#include "graph/ops/add.h"

namespace weft {

Gradients::Gradients(Graph* graph, Dtype grad_dtype)
    : graph_(*graph), grad_dtype_(grad_dtype), needed_(graph->values.size(), false) {
  for (size_t i = 0; i < graph_.values.size(); ++i) {
    const Value& v = graph_.values[i];
    needed_[i] = v.kind == ValueKind::kParameter && !v.frozen;
  }
  for (const Node& node : graph_.pass) {
    bool any = false;
    for (Ref in : node.inputs) any = any || needs(in);
    for (Ref out : node.outputs) {
      if (out && any) needed_[static_cast<size_t>(out.id)] = true;
    }
  }
}

bool Gradients::needs(Ref r) const {
  return static_cast<size_t>(r.id) < needed_.size() && needed_[static_cast<size_t>(r.id)];
}

Ref Gradients::of(Ref value) const {
  const auto found = gradients_.find(value.id);
  return found == gradients_.end() ? Ref{} : found->second;
}

Ref Gradients::like(Ref value) {
  const Value v = graph_[value];
  return graph_.add({"d." + v.name, v.shape, v.dtype, ValueKind::kActivation});
}

Gradients::ParameterGradient Gradients::of_parameter(Ref parameter) {
  const auto found = parameter_gradients_.find(parameter.id);
  if (found != parameter_gradients_.end()) return {found->second, false};
  const Value p = graph_[parameter];
  Ref g = graph_.add({p.name + "#grad", p.shape, grad_dtype_, ValueKind::kGradient, parameter});
  parameter_gradients_[parameter.id] = g;
  graph_.updates.push_back({parameter, g});
  return {g, true};
}

Gradients::ParameterGradient Gradients::of_parameter_if_needed(Ref parameter) {
  return needs(parameter) ? of_parameter(parameter) : ParameterGradient{};
}

Node& Gradients::add(Op op, const Node& of, std::vector<Ref> inputs, std::vector<Ref> outputs,
                     std::any attr) {
  graph_.pass.push_back({op, std::move(inputs), std::move(outputs), std::move(attr), of.layer});
  return graph_.pass.back();
}

void Gradients::flow(Ref into, Ref gradient, const Node& of) {
  if (!needs(into)) return;
  const auto found = gradients_.find(into.id);
  if (found == gradients_.end()) {
    gradients_[into.id] = gradient;
    return;
  }
  Ref sum = like(into);
  add(&kAddOp, of, {found->second, gradient}, {sum});
  found->second = sum;
}

}  // namespace weft
