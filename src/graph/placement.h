// graph/placement.h: how a value lies over the ranks of one mesh axis, and how an op carries that
// on.
//
// whole: every rank holds all of it. cut: rank r holds the r-th part of dimension `dim`. partial:
// every rank holds a full-sized addend, and the value is their sum. Rules never move data: where an
// op needs whole what is only partial, the pass that uses the rules puts a collective.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace weft {

struct Placement {
  enum class Kind { kWhole, kCut, kPartial } kind = Kind::kWhole;
  int dim = -1;
  bool operator==(const Placement&) const = default;
  bool is_whole() const { return kind == Kind::kWhole; }
  bool is_partial() const { return kind == Kind::kPartial; }
  bool is_cut(int d) const { return kind == Kind::kCut && dim == d; }
};
inline Placement whole() { return {}; }
inline Placement cut(int dim) { return {Placement::Kind::kCut, dim}; }
inline Placement partial() { return {Placement::Kind::kPartial, -1}; }
std::string to_string(const Placement& p);

// Outputs of the node where its inputs lie as given; no input may be partial. BugError naming op
// and placements where the op has no rule for them.
std::vector<Placement> place_outputs(const Node& node, const std::vector<Placement>& inputs);

// Placements of every value of the pass list, from those of parameters and inputs (by name; whole
// where not named). `reduced` lists the values that are partial when some node reads them: there a
// sum over the axis belongs. Gradients of parameters may stay partial: they are reduced last.
struct Placed {
  std::vector<Placement> values;
  std::vector<Ref> reduced;
};
Placed propagate_placements(const Graph& graph, const std::map<std::string, Placement>& given);

}  // namespace weft
