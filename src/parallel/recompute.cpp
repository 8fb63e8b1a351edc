// parallel/recompute.cpp: clones of cheap forward nodes, placed before their first backward reader.
#include "parallel/recompute.h"

#include <map>

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
  for (size_t i = head; i < graph->pass.size(); ++i) {
    Node node = graph->pass[i];
    // The head reads the last norm's output when it is still fresh: nothing to repeat there.
    for (size_t k = 0; node.op != Op::kHeadLossGrad && k < node.inputs.size(); ++k) {
      const Ref in = node.inputs[k];
      if (const auto found = repeated.find(in.id); found != repeated.end()) {
        node.inputs[k] = found->second;
        continue;
      }
      const auto made_by = producer.find(in.id);
      if (made_by == producer.end()) continue;
      Value copy = (*graph)[in];
      copy.name += ".again";
      Node repeat;
      const Ref again{static_cast<int>(graph->values.size())};
      if (!repeat_node(nodes[made_by->second], in, again, &repeat)) continue;
      graph->add(std::move(copy));
      nodes.push_back(std::move(repeat));
      repeated[in.id] = again;
      node.inputs[k] = again;
    }
    nodes.push_back(std::move(node));
  }
  graph->pass = std::move(nodes);
}

}  // namespace weft
