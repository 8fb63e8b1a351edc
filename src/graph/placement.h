// graph/placement.h: how a value is distributed over the ranks of one mesh axis.
//
// whole: every rank holds all of it. cut: rank r holds the r-th part of dimension `dim`. partial:
// every rank holds a full-sized addend, and the value is their sum. Rules never move data: where an
// op needs a whole value that is only partial, the pass that uses the rules inserts a collective.
#pragma once

#include <initializer_list>
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

// For the rules of operations. BugError naming operation and placements where none fits.
[[noreturn]] void refuse_placement(const Node& node, const std::vector<Placement>& inputs);
bool all_are(const std::vector<Placement>& in, size_t begin, size_t count, const Placement& p);
bool rest_whole(const std::vector<Placement>& in, size_t begin);
// For operations on independent heads (or columns) and rows: the placement is unchanged. like: the
// inputs that must have the same placement.
Placement place_along(const Node& node, const std::vector<Placement>& in,
                      std::initializer_list<size_t> like);
// Norms read a whole row of columns: only rows may be cut.
Placement place_rows(const Node& node, const std::vector<Placement>& in,
                     std::initializer_list<size_t> like);
// A parameter's gradient is partial where the rows that it sums over are cut.
Placement summed_over_rows(const Placement& rows, const Placement& otherwise);

// Placements of every value of the pass list, from those of parameters and inputs (by name; whole
// where not named). `reduced` lists the values that are partial when some node reads them: a sum
// over the axis is needed there. Gradients of parameters may stay partial: they are reduced last.
struct Placed {
  std::vector<Placement> values;
  std::vector<Ref> reduced;
};
Placed propagate_placements(const Graph& graph, const std::map<std::string, Placement>& given);

}  // namespace weft
