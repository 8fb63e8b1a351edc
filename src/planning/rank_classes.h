// planning/rank_classes.h: ranks that need the same memory and make the same calls.
//
// Ranks of the tensor axis differ where the vocabulary has a short last piece or a replicated
// gradient is counted on one of them; ranks of the data axis where the cut of a bucket gives them
// other numbers of segments. Most are equal, so that few plans represent ten thousand ranks.
#pragma once

#include <vector>

#include "model/model.h"
#include "planning/layout.h"

namespace weft {

struct RankClasses {
  std::vector<int> first;  // the lowest rank of each class; class 0 is rank 0's
  std::vector<int> of;     // by rank: its class
};

// The graphs of all ranks of the tensor axis. They do not depend on how the data axis is sharded.
struct CutGraphs {
  std::vector<Graph> graphs;
  std::vector<uint64_t> hashes;  // of their structure
};
CutGraphs make_cut_graphs(const RunConfig& config, const Model& model, const Layout& layout);
RankClasses find_rank_classes(const CutGraphs& cut, const Layout& layout);

}  // namespace weft
