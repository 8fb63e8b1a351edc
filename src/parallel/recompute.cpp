// parallel/recompute.cpp: clones of cheap forward nodes, placed before their first backward reader.
#include "parallel/recompute.h"

#include <map>
#include <set>

#include "base/error.h"

namespace weft {
namespace {

// The node that makes `value` again, or none where the op is not cheap.
bool repeat_node(const Node& forward, Ref value, Ref again, Node* made) {
  if (forward.op == Op::kSwiglu) {
    *made = {Op::kSwiglu, forward.inputs, {again}, forward.attr, forward.layer};
    return true;
  }
  if (forward.op == Op::kRmsNorm && forward.outputs[1] == value) {
    const Ref sum = forward.outputs[0] ? forward.outputs[0] : forward.inputs[0];
    *made = {Op::kRmsNormApply,
             {sum, forward.inputs[1], forward.outputs[2]},
             {again},
             forward.attr,
             forward.layer};
    return true;
  }
  return false;
}

// What a forward swiglu has read whose value this weight gradient reads; none: another reader.
Ref gate_up_of(const Node& node, const std::vector<Node>& nodes,
               const std::map<int, size_t>& producer) {
  if (node.op != Op::kLinearDw) return {};
  const auto made_by = producer.find(node.inputs[1].id);
  if (made_by == producer.end()) return {};
  const Node& forward = nodes[made_by->second];
  return forward.op == Op::kSwiglu ? forward.inputs[0] : Ref{};
}

}  // namespace

void recompute_cheap_values(Graph* graph) {
  size_t head = 0;
  while (head < graph->pass.size() && graph->pass[head].op != Op::kHeadLossGrad) ++head;
  std::map<int, size_t> producer;  // of forward values
  for (size_t i = 0; i < head; ++i) {
    for (Ref out : graph->pass[i].outputs) {
      if (out) producer[out.id] = i;
    }
  }
  std::vector<Node> nodes(graph->pass.begin(), graph->pass.begin() + static_cast<int64_t>(head));
  std::map<int, Ref> repeated;
  // The gradient of a swiglu makes its value again on the way: who reads it waits for that one.
  std::set<int> differentiated;  // inputs of swiglus that have a gradient
  for (const Node& node : graph->pass) {
    if (node.op == Op::kSwigluGrad) differentiated.insert(node.inputs[1].id);
  }
  std::map<int, std::vector<Node>> waiting;  // by the swiglu's input
  const auto add_copy = [&](Ref of) {
    Value copy = (*graph)[of];
    copy.name += ".again";
    return graph->add(std::move(copy));
  };
  for (size_t i = head; i < graph->pass.size(); ++i) {
    Node node = graph->pass[i];
    const Ref read = gate_up_of(node, nodes, producer);
    if (read && differentiated.contains(read.id)) {
      waiting[read.id].push_back(node);
      continue;
    }
    // The head reads the last norm's output when it is still fresh: nothing to repeat there.
    for (size_t k = 0; node.op != Op::kHeadLossGrad && k < node.inputs.size(); ++k) {
      const Ref in = node.inputs[k];
      if (const auto found = repeated.find(in.id); found != repeated.end()) {
        node.inputs[k] = found->second;
        continue;
      }
      const auto made_by = producer.find(in.id);
      if (made_by == producer.end()) continue;
      const Ref again{static_cast<int>(graph->values.size())};
      Node repeat;
      if (!repeat_node(nodes[made_by->second], in, again, &repeat)) continue;
      add_copy(in);
      nodes.push_back(std::move(repeat));
      repeated[in.id] = again;
      node.inputs[k] = again;
    }
    const int gate_up = node.op == Op::kSwigluGrad ? node.inputs[1].id : -1;
    nodes.push_back(std::move(node));
    const auto readers = waiting.find(gate_up);
    if (readers == waiting.end()) continue;
    const Ref again = add_copy(readers->second[0].inputs[1]);
    nodes.back().outputs.push_back(again);
    for (Node& reader : readers->second) {
      reader.inputs[1] = again;
      nodes.push_back(std::move(reader));
    }
    waiting.erase(readers);
  }
  ensure(waiting.empty(), "a product waits for a swiglu without gradient");
  graph->pass = std::move(nodes);
}

}  // namespace weft
