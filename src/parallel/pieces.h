// parallel/pieces.h: how a parameter is cut over the tensor-parallel axis.
//
// A cut parameter is `count` pieces along one dim, and every rank holds an equal, consecutive run
// of them. In fast mode there is one piece a rank. In exact mode there are exact_tp pieces whatever
// tp is: a piece is a leaf of every contraction over that dim, and later passes place leaves but
// never split arithmetic.
//
// A parameter of fewer units than pieces (key/value heads) has copies: each unit is the piece of
// several neighbouring leaves. A rank holds a unit once, however many of its leaves read it; where
// a unit's leaves stand on several ranks, each of them holds it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace weft {

struct Cut {
  int dim = -1;            // -1: every rank holds the parameter whole
  int64_t unit = 1;        // pieces are whole multiples of this (a head)
  bool is_uneven = false;  // the last pieces may be smaller or empty (the vocabulary)
};
using Cuts = std::map<std::string, Cut>;  // by name of the parameter

struct TensorParallel {
  int tp = 1, rank = 0;
  int pieces = 1;  // of a cut parameter; a multiple of tp
  bool is_exact = false;
  int pieces_a_rank() const { return pieces / tp; }
};

struct Piece {
  int64_t begin = 0, end = 0;  // along the cut dim
  int copies = 1;              // so many neighbouring ranks hold it
  bool is_first_copy = true;
  int leaves = 1;  // so many of this rank's leaves read it
};

// The pieces that a rank holds, in order, each once.
std::vector<Piece> pieces_of(const TensorParallel& mesh, const Cut& cut, int64_t extent);

}  // namespace weft
