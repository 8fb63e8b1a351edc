// parallel/stack_parts.cpp: one bucket per list of parts, without gaps.
#include "parallel/stack_parts.h"

#include <algorithm>

#include "graph/ops/linear.h"

namespace weft {
namespace {

// Parts of one kind and type without a location yet: each becomes a view of a new value.
void stack(Graph* graph, const std::vector<Ref>& parts) {
  if (parts.size() < 2) return;
  const Value first = (*graph)[parts[0]];
  int64_t elements = 0;
  for (const Ref part : parts) {
    if (!part) return;
    const Value& v = (*graph)[part];
    if (v.base || v.is_bucket || v.kind != first.kind || v.dtype != first.dtype) return;
    if (std::count(parts.begin(), parts.end(), part) > 1) return;
    elements += num_elements(v.shape);
  }
  if (first.kind != ValueKind::kParameter && first.kind != ValueKind::kGradient) return;
  const Ref base = graph->add(Value{first.name + ".stack", {elements}, first.dtype, first.kind});
  (*graph)[base].is_bucket = true;
  int64_t at = 0;
  for (const Ref part : parts) {
    Value& v = (*graph)[part];
    v.base = base;
    v.base_offset = at;
    at += num_elements(v.shape);
  }
}

std::vector<Ref> some(const std::vector<Ref>& refs, size_t begin, size_t count) {
  const auto from = refs.begin() + static_cast<std::ptrdiff_t>(begin);
  return {from, from + static_cast<std::ptrdiff_t>(count)};
}

}  // namespace

void stack_parts(Graph* graph) {
  // By index, since adding values while iterating by reference would be fragile.
  for (size_t i = 0; i < graph->pass.size(); ++i) {
    const Node& node = graph->pass[i];
    if (node.op != &kLinearOp && node.op != &kLinearDwOp) continue;
    const LinearAttr attr = node.as<LinearAttr>();
    // Weights (in, out) would be side by side, not stacked: each is a separate product.
    if (attr.row_pieces > 0 || attr.order == WeightOrder::kInOut) continue;
    if (node.op == &kLinearDwOp) {
      stack(graph, node.outputs);
      continue;
    }
    const auto parts = static_cast<size_t>(attr.parts);
    stack(graph, some(node.inputs, 1, parts));
    if (attr.has_bias) stack(graph, some(node.inputs, 1 + parts, parts));
  }
}

}  // namespace weft
