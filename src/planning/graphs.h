// planning/graphs.h: the list of passes: a model and a layout become the graph of one rank.
#pragma once

#include "graph/graph.h"
#include "model/model.h"
#include "planning/layout.h"
#include "tensor/lengths.h"

namespace weft {

// What rows are padded to at most: data.seq_length, of an encoder-decoder the source's, whose
// targets have data.target_length.
Lengths longest_lengths(const RunConfig& config, const Model& model);
// The same run with rows of other lengths.
RunConfig with_lengths(RunConfig config, const Lengths& lengths);

// Forward and backward pass before any cut: the same for all ranks and shards.
Graph make_logical_graph(const RunConfig& config, const Model& model);
// Forward and backward pass after the tensor-parallel cut, before the data-parallel one.
Graph make_cut_graph(const RunConfig& config, const Model& model, const Layout& layout, int rank);
Graph make_training_graph(const RunConfig& config, const Layout& layout, int rank, Graph cut);
Graph make_training_graph(const RunConfig& config, const Model& model, const Layout& layout,
                          int rank);
// Where training and evaluation have the parameters of this rank.
BucketPlaces find_bucket_places(const RunConfig& config, const Model& model, const Layout& layout,
                                int rank);
// Forward and loss only.
Graph make_eval_graph(const RunConfig& config, const Model& model, const Layout& layout, int rank);

}  // namespace weft
