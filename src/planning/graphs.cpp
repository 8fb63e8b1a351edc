// planning/graphs.cpp: trace, differentiate, recompute, cut over tensor and data ranks, optimize.
#include "planning/graphs.h"

#include "graph/autodiff.h"
#include "optim/updates.h"
#include "parallel/recompute.h"
#include "planning/fault.h"

namespace weft {
namespace {

Dtype gradient_dtype(const RunConfig& c) {
  // bf16 sums only where nothing is added afterwards but the ranks' addends: one pass per step,
  // weights stored in bf16, fast mode.
  const bool low = c.compute_dtype() == Dtype::kBf16 && !c.train.master_weights &&
                   c.num_passes() == 1 && c.parallel.mode == "fast";
  return low ? Dtype::kBf16 : Dtype::kF32;
}

Ref trace(const RunConfig& c, const Model& model, bool is_training, Graph* graph) {
  const Lengths longest = longest_lengths(c, model);
  const Ref losses = model.trace_loss(graph, {.batch = c.micro_batch(),
                                              .positions = longest.target,
                                              .compute = c.compute_dtype(),
                                              .packed = c.data.layout == "pack",
                                              .learns_padding = !c.data.mask_padding,
                                              .drops = is_training,
                                              .seed = static_cast<uint64_t>(c.seed),
                                              .source_positions = longest.source});
  if (!c.model.freeze.empty()) freeze_parameters(graph, model.parameters(), c.model.freeze);
  return losses;
}

Graph make_cut_eval_graph(const RunConfig& c, const Model& model, const Layout& layout, int rank) {
  Graph graph;
  add_loss_sum(&graph, trace(c, model, false, &graph));
  apply_tensor_parallel(&graph, cuts_of(model), layout.tensor(rank));
  return graph;
}

}  // namespace

Lengths longest_lengths(const RunConfig& config, const Model& model) {
  if (reads_source(model)) return {config.data.target_length, config.data.seq_length};
  return {config.data.seq_length, 0};
}

RunConfig with_lengths(RunConfig config, const Lengths& lengths) {
  const bool has_source = lengths.source > 0;
  config.data.seq_length = has_source ? lengths.source : lengths.target;
  if (has_source) config.data.target_length = lengths.target;
  return config;
}

Graph make_logical_graph(const RunConfig& c, const Model& model) {
  Graph graph;
  const Ref losses = trace(c, model, true, &graph);
  add_backward(&graph, losses, gradient_dtype(c));
  recompute_cheap_values(&graph);
  return graph;
}

Graph make_cut_graph(const RunConfig& c, const Model& model, const Layout& layout, int rank) {
  Graph graph = make_logical_graph(c, model);
  apply_tensor_parallel(&graph, cuts_of(model), layout.tensor(rank));
  return graph;
}

Graph make_training_graph(const RunConfig& c, const Model& model, const Layout& layout, int rank) {
  return make_training_graph(c, layout, rank, make_cut_graph(c, model, layout, rank));
}

Graph make_training_graph(const RunConfig& c, const Layout& layout, int rank, Graph graph) {
  const DataParallel data = layout.data(rank, c.num_passes());
  const std::vector<Bucket> buckets = apply_data_parallel(&graph, data);
  UpdateOptions options;
  options.master_weights = c.has_masters();
  options.is_sharded = data.shard != Shard::kNone;
  options.sum_tensor = layout.tp > 1;
  options.sum_data = data.shard != Shard::kNone;
  options.scales_loss = c.scales_loss();
  options.clips = c.train.clip_norm > 0;
  add_updates(&graph, find_optimizer(c.train.optimizer.name), c.train.optimizer, options);
  add_parameter_gathers(&graph, buckets, data);
  if (const auto fault = Fault::from_environment()) fault->change(&graph, rank);
  return graph;
}

BucketPlaces find_bucket_places(const RunConfig& c, const Model& model, const Layout& layout,
                                int rank) {
  // The buckets are in order of first use: the forward pass is enough.
  const Graph graph = make_cut_eval_graph(c, model, layout, rank);
  return places_of(graph, make_buckets(graph, layout.dp));
}

Graph make_eval_graph(const RunConfig& c, const Model& model, const Layout& layout, int rank) {
  Graph graph = make_cut_eval_graph(c, model, layout, rank);
  apply_data_parallel(&graph, layout.data(rank, c.num_passes()));
  return graph;
}

}  // namespace weft
