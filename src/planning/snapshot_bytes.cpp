// planning/snapshot_bytes.cpp: parameters or their masters, and the optimizer's states.
#include "planning/snapshot_bytes.h"

#include <fnmatch.h>

#include <algorithm>

#include "graph/portion.h"
#include "model/stored.h"
#include "optim/optimizer.h"
#include "planning/backend.h"

namespace weft {

bool has_snapshot_slots(const RunConfig& c) {
  // A supervisor is there also where an elastic run has a single rank left.
  const bool is_supervised = c.parallel.dp * c.parallel.tp > 1 || c.launch.elastic;
  return is_supervised && c.launch.max_restarts != 0 && c.launch.snapshot_steps() >= 0 &&
         comm_choice() != "gloo";
}

int64_t num_state_copies(const RunConfig& c) {
  const int64_t saved = c.checkpoint.async ? 1 : 0;
  // On several nodes another one has the same copies again.
  return has_snapshot_slots(c) ? (2 + saved) * (c.launch.nodes > 1 ? 2 : 1) : saved;
}

int64_t snapshot_bytes(const Graph& graph, bool has_masters) {
  int64_t bytes = 0;
  for (const ValueKind kind : {ValueKind::kParameter, ValueKind::kState}) {
    for (Ref r : graph.of_kind(kind)) {
      const Value& v = graph[r];
      if (!v.is_saved) continue;
      if (kind == ValueKind::kParameter && (v.is_bucket || (has_masters && !v.frozen))) continue;
      bytes += portion_elements(portion_of(v)) * dtype_bytes(v.dtype);
    }
  }
  return bytes;
}

namespace {

// Bytes of the whole model, and the number of elements that are trained.
struct StoredSizes {
  int64_t frozen = 0, trained = 0, states = 0;  // trained: masters, where these exist
  int64_t trained_elements = 0;
};

StoredSizes stored_sizes(const RunConfig& c, const Model& model) {
  const int64_t kept = c.has_masters() ? 4 : dtype_bytes(c.compute_dtype());
  StoredSizes sizes;
  for (const ParameterSpec& p : model.parameters()) {
    const std::string name = stored_as(p).name;
    const bool is_frozen =
        std::any_of(c.model.freeze.begin(), c.model.freeze.end(),
                    [&](const auto& f) { return ::fnmatch(f.c_str(), name.c_str(), 0) == 0; });
    const int64_t n = num_elements(p.shape);
    if (is_frozen) {
      sizes.frozen += n * dtype_bytes(c.compute_dtype());
      continue;
    }
    sizes.trained += n * kept;
    sizes.trained_elements += n;
    for (const StateSpec& s : find_optimizer(c.train.optimizer.name).states(c.train.optimizer))
      sizes.states += n / s.block * (s.type == StateSpec::Type::kF32 ? 4 : kept);
  }
  return sizes;
}

}  // namespace

int64_t snapshot_bytes(const RunConfig& c, const Model& model) {
  const StoredSizes sizes = stored_sizes(c, model);
  return sizes.frozen + sizes.trained + sizes.states;
}

int64_t least_arena(const RunConfig& c, const Model& model) {
  const StoredSizes sizes = stored_sizes(c, model);
  const int64_t dp = c.parallel.dp, tp = c.parallel.tp;
  const std::string& shard = c.parallel.shard;
  const bool cuts_weights = shard == "zero3" || shard == "fsdp";
  const bool cuts_gradients = cuts_weights || shard == "zero2";
  const int64_t weights = sizes.frozen + sizes.trained_elements * dtype_bytes(c.compute_dtype());
  const int64_t updated = sizes.states + (c.has_masters() ? sizes.trained : 0);
  // In exact mode some layouts keep no whole gradients.
  const bool keeps_gradients = c.parallel.mode == "fast" && c.num_passes() > 1;
  const int64_t gradients = keeps_gradients ? sizes.trained_elements * 4 : 0;
  const auto share = [&](int64_t bytes, bool is_cut) { return bytes / (tp * (is_cut ? dp : 1)); };
  return share(weights, cuts_weights) + share(updated, shard != "none") +
         share(gradients, cuts_gradients);
}

}  // namespace weft
