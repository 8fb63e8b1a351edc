// graph/autodiff.cpp: gradient rules, one a forward op, walked from the loss to the embedding.
//
// The backward pass is of the SUM of token losses, so the seed is one and needs no value. A
// node's gradient nodes read the forward values they need; whether those are kept or computed
// again is decided later (parallel/recompute).
#include "graph/autodiff.h"

#include <map>

#include "base/error.h"
#include "base/exact_sum.h"

namespace weft {
namespace {

class Backward {
 public:
  Backward(Graph* graph, Dtype grad_dtype) : graph_(*graph), grad_dtype_(grad_dtype) {}

  void run(Ref losses) {
    mark_needed();
    const std::vector<Node> forward = std::move(graph_.pass);
    graph_.pass.clear();
    for (const Node& node : forward) {
      if (node.op == Op::kHeadLoss && node.outputs[0] == losses) {
        add_head(node);
      } else {
        graph_.pass.push_back(node);
      }
    }
    for (size_t i = forward.size(); i-- > 0;) {
      if (forward[i].op != Op::kHeadLoss) differentiate(forward[i]);
    }
  }

 private:
  // A value needs a gradient where an unfrozen parameter lies behind it.
  void mark_needed() {
    needed_.assign(graph_.values.size(), false);
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
  bool needs(Ref r) const {
    return static_cast<size_t>(r.id) < needed_.size() && needed_[static_cast<size_t>(r.id)];
  }

  Node& add(Op op, const Node& of, std::vector<Ref> inputs, std::vector<Ref> outputs) {
    graph_.pass.push_back({op, std::move(inputs), std::move(outputs), of.attr, of.layer});
    return graph_.pass.back();
  }

  Ref gradient_like(Ref of) {
    const Value v = graph_[of];
    return graph_.add({"d." + v.name, v.shape, v.dtype, ValueKind::kActivation});
  }

  // The gradient buffer of a parameter, and whether this is its first writer in the pass.
  std::pair<Ref, bool> parameter_gradient(Ref parameter) {
    const auto found = parameter_gradients_.find(parameter.id);
    if (found != parameter_gradients_.end()) return {found->second, false};
    const Value p = graph_[parameter];
    Ref g = graph_.add({p.name + "#grad", p.shape, grad_dtype_, ValueKind::kGradient, parameter});
    parameter_gradients_[parameter.id] = g;
    graph_.updates.push_back({parameter, g});
    return {g, true};
  }

  // One more gradient flows into an activation; several are added in trace order.
  void flow(Ref into, Ref gradient, const Node& of) {
    if (!needs(into)) return;
    const auto found = gradients_.find(into.id);
    if (found == gradients_.end()) {
      gradients_[into.id] = gradient;
      return;
    }
    Ref sum = gradient_like(into);
    add(Op::kAdd, of, {found->second, gradient}, {sum});
    found->second = sum;
  }

  Ref gradient_of(Ref value) const {
    const auto found = gradients_.find(value.id);
    return found == gradients_.end() ? Ref{} : found->second;
  }

  void add_head(const Node& node) {
    const Ref x = node.inputs[0], weight = node.inputs[1];
    Ref dx = needs(x) ? gradient_like(x) : Ref{};
    Ref dweight;
    bool first = true;
    if (needs(weight)) std::tie(dweight, first) = parameter_gradient(weight);
    Node& fused = add(Op::kHeadLossGrad, node, node.inputs, {node.outputs[0], dx, dweight});
    fused.attr.first_writer = first;
    if (dx) flow(x, dx, node);
  }

  void differentiate(const Node& node) {
    switch (node.op) {
      case Op::kLinear:
        return linear(node);
      case Op::kRmsNorm:
        return rmsnorm(node);
      case Op::kEmbedding:
        return embedding(node);
      case Op::kRope:
      case Op::kSwiglu:
      case Op::kAttention:
        return through(node);
      default:
        throw BugError(fmt::format("{} has no gradient rule", op_name(node.op)));
    }
  }

  // Ops with one differentiable input: dx from dy and the kept forward values.
  void through(const Node& node) {
    const Ref x = node.inputs[0], dy = gradient_of(node.outputs[0]);
    if (!dy || !needs(x)) return;
    Ref dx = gradient_like(x);
    if (node.op == Op::kRope) {
      std::vector<Ref> inputs = node.inputs;
      inputs[0] = dy;
      add(Op::kRopeInverse, node, std::move(inputs), {dx});
    } else if (node.op == Op::kSwiglu) {
      add(Op::kSwigluGrad, node, {dy, x}, {dx});
    } else {
      std::vector<Ref> inputs = {x, node.inputs[1], node.outputs[0], dy, node.outputs[1]};
      // Positions of packed rows, the rows' numbers of dropout.
      inputs.insert(inputs.end(), node.inputs.begin() + 2, node.inputs.end());
      add(Op::kAttentionGrad, node, std::move(inputs), {dx});
    }
    flow(x, dx, node);
  }

  void linear(const Node& node) {
    const Ref x = node.inputs[0], dy = gradient_of(node.outputs[0]);
    if (!dy) return;
    const size_t parts = static_cast<size_t>(node.attr.parts);
    parameter_runs(node, dy, Op::kLinearDw, 1, parts, x);
    if (node.attr.has_bias) parameter_runs(node, dy, Op::kBiasGrad, 1 + parts, parts, Ref{});
    if (!needs(x)) return;
    Ref dx = gradient_like(x);
    std::vector<Ref> inputs = {dy};
    inputs.insert(inputs.end(), node.inputs.begin() + 1,
                  node.inputs.begin() + 1 + static_cast<int64_t>(parts));
    add(Op::kLinearDx, node, std::move(inputs), {dx});
    flow(x, dx, node);
  }

  // One node for each run of neighbouring parts that are not frozen and write alike.
  void parameter_runs(const Node& node, Ref dy, Op op, size_t begin, size_t count, Ref x) {
    int64_t column = 0;
    Node* open = nullptr;
    bool open_first = true;
    for (size_t p = 0; p < count; ++p) {
      const Ref parameter = node.inputs[begin + p];
      if (!needs(parameter)) {
        open = nullptr;
      } else {
        const auto [gradient, first] = parameter_gradient(parameter);
        if (open == nullptr || open_first != first) {
          std::vector<Ref> inputs = {dy};
          if (x) inputs.push_back(x);
          open = &add(op, node, std::move(inputs), {});
          open->attr.column = column;
          open->attr.parts = 0;
          open->attr.first_writer = open_first = first;
        }
        open->outputs.push_back(gradient);
        ++open->attr.parts;
      }
      column += graph_[parameter].shape[0];
    }
  }

  void rmsnorm(const Node& node) {
    const Ref x = node.inputs[0], weight = node.inputs[1];
    const Ref sum = node.outputs[0] ? node.outputs[0] : x;
    const Ref dy = gradient_of(node.outputs[1]), dsum = gradient_of(sum);
    if (!dy || (!needs(x) && !needs(weight))) return;
    // Without a residual the sum is x itself: what flowed into x is taken up here.
    Ref ds = gradient_like(sum);
    Ref dweight;
    bool first = true;
    if (needs(weight)) std::tie(dweight, first) = parameter_gradient(weight);
    std::vector<Ref> inputs = {dy, sum, weight, node.outputs[2]};
    if (dsum) inputs.push_back(dsum);
    Node& made = add(Op::kRmsNormGrad, node, std::move(inputs), {ds, dweight});
    made.attr.has_dsum = static_cast<bool>(dsum);
    made.attr.first_writer = first;
    if (!node.outputs[0]) {
      if (needs(x)) gradients_[x.id] = ds;
      return;
    }
    flow(x, ds, node);
    flow(node.inputs[2], ds, node);
  }

  void embedding(const Node& node) {
    const Ref table = node.inputs[1], dy = gradient_of(node.outputs[0]);
    if (!dy || !needs(table)) return;
    const auto [gradient, first] = parameter_gradient(table);
    add(Op::kEmbeddingGrad, node, {dy, node.inputs[0]}, {gradient}).attr.first_writer = first;
  }

  Graph& graph_;
  Dtype grad_dtype_;
  std::vector<bool> needed_;
  std::map<int, Ref> gradients_;            // of activations, by value
  std::map<int, Ref> parameter_gradients_;  // by parameter
};

}  // namespace

void add_loss_sum(Graph* graph, Ref losses) {
  Ref sum = graph->add({"loss_sum", {ExactSum::kLimbs}, Dtype::kI64, ValueKind::kResult});
  graph->pass.push_back({Op::kLossSum, {losses}, {sum}, {}, -1});
}

void add_backward(Graph* graph, Ref losses, Dtype grad_dtype) {
  bool any = false;
  for (Ref p : graph->of_kind(ValueKind::kParameter)) any = any || !(*graph)[p].frozen;
  require(any, "model.freeze covers every parameter: nothing is left to train");
  Backward(graph, grad_dtype).run(losses);
  add_loss_sum(graph, losses);
}

}  // namespace weft
