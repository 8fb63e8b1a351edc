// graph/placement.cpp: propagates the operations' placement rules through a list.
//
// Activations are (B, T, columns): dim 0 is the batch (data parallel), dim 2 the columns (tensor
// parallel).
#include "graph/placement.h"

#include "base/error.h"
#include "graph/op_rule.h"

namespace weft {

using Inputs = std::vector<Placement>;

void refuse_placement(const Node& node, const Inputs& inputs) {
  std::string text;
  for (const Placement& p : inputs) text += (text.empty() ? "" : ", ") + to_string(p);
  throw BugError(fmt::format("[{}] no placement rule for inputs ({})", op_name(node.op), text));
}

bool all_are(const Inputs& in, size_t begin, size_t count, const Placement& p) {
  for (size_t i = begin; i < begin + count; ++i) {
    if (!(in[i] == p)) return false;
  }
  return true;
}

bool rest_whole(const Inputs& in, size_t begin) {
  return all_are(in, begin, in.size() - begin, whole());
}

Placement place_along(const Node& node, const Inputs& in, std::initializer_list<size_t> like) {
  const Placement& first = in[*like.begin()];
  if (first.is_partial()) refuse_placement(node, in);
  for (size_t i : like) {
    if (!(in[i] == first)) refuse_placement(node, in);
  }
  return first;
}

Placement place_rows(const Node& node, const Inputs& in, std::initializer_list<size_t> like) {
  const Placement p = place_along(node, in, like);
  if (!p.is_whole() && !p.is_cut(0)) refuse_placement(node, in);
  return p;
}

Placement summed_over_rows(const Placement& rows, const Placement& otherwise) {
  return rows.is_cut(0) ? partial() : otherwise;
}

std::string to_string(const Placement& p) {
  switch (p.kind) {
    case Placement::Kind::kWhole:
      return "whole";
    case Placement::Kind::kCut:
      return fmt::format("cut({})", p.dim);
    default:
      return "partial";
  }
}

Placed propagate_placements(const Graph& graph, const std::map<std::string, Placement>& given) {
  Placed placed{std::vector<Placement>(graph.values.size()), {}};
  std::vector<bool> is_reduced(graph.values.size(), false);
  for (size_t i = 0; i < graph.values.size(); ++i) {
    if (const auto found = given.find(graph.values[i].name); found != given.end())
      placed.values[i] = found->second;
  }
  for (const Node& node : graph.pass) {
    Inputs in;
    for (Ref r : node.inputs) {
      const size_t id = static_cast<size_t>(r.id);
      if (placed.values[id].is_partial() && !is_reduced[id]) {
        placed.reduced.push_back(r);
        is_reduced[id] = true;
      }
      in.push_back(is_reduced[id] ? whole() : placed.values[id]);
    }
    const Inputs out = node.op->place(node, in);
    for (size_t k = 0; k < node.outputs.size(); ++k) {
      const Ref r = node.outputs[k];
      if (!r) continue;
      const Ref table = graph[r].parameter;
      const bool as_table = node.op->traits.gradient_lies_as_table && table &&
                            placed.values[static_cast<size_t>(table.id)].is_cut(0);
      placed.values[static_cast<size_t>(r.id)] = as_table ? cut(0) : out[k];
    }
  }
  return placed;
}

}  // namespace weft
