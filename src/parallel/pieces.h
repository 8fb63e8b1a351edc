// parallel/pieces.h: how a parameter is cut over the tensor-parallel axis.
//
// A cut parameter is `count` pieces along one dim, and every rank holds an equal, consecutive run
// of them. In fast mode there is one piece per rank. In exact mode there are exact_tp pieces
// whatever tp is: a piece is a leaf of every contraction over that dim, and later passes place
// leaves but never split arithmetic.
//
// A parameter of fewer units than pieces (key/value heads) has copies: each unit is the piece of
// several neighbouring leaves. A rank holds a unit once, however many of its leaves read it; where
// a unit's leaves are on several ranks, each of them holds it.
//
// In fast mode neither number need divide the other: 3 key/value heads on 2 ranks are 6 leaves, 3
// of which read head 0, 0, 1 on the first rank and 1, 2, 2 on the second. Only head 1 exists twice.
// A rank shares such a unit with ranks before it, after it, or both, so that two groups of
// neighbours are enough, which the shared units use alternately.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "graph/localizer.h"

namespace weft {

struct Cut {
  int dim = -1;            // -1: every rank holds the parameter whole
  int64_t unit = 1;        // pieces are whole multiples of this (a head)
  bool is_uneven = false;  // the last pieces may be smaller or empty (the vocabulary)
};
using Cuts = std::map<std::string, Cut>;  // by name of the parameter

inline constexpr int kWholeAxisGroup = 2;  // of copies on all ranks, next to the two groups above
struct Piece {
  int64_t begin = 0, end = 0;  // along the cut dim
  int copies = 1;              // number of neighbouring ranks that hold it
  bool is_first_copy = true;
  int leaves = 1;       // number of this rank's leaves that read it
  int copy_group = -1;  // where only some units are shared: of the ranks that share this one
};

// A unit that several ranks of the tensor axis read where neither `units` nor tp divides the other.
struct SharedUnit {
  int64_t unit = 0;
  int first_rank = 0, num_ranks = 1;
  int copy_group = 0;
};
std::vector<SharedUnit> shared_units(int64_t units, int tp);  // none where one divides the other
int64_t leaves_of_spread_units(int64_t units, int tp);        // of a rank

// The pieces that a rank holds, in order, each once.
std::vector<Piece> pieces_of(const TensorParallel& mesh, const Cut& cut, int64_t extent);

}  // namespace weft
