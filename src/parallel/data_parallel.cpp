// parallel/data_parallel.cpp: turns buckets into values and their tensors into views, and inserts
// collectives.
#include "parallel/data_parallel.h"

#include <algorithm>
#include <bit>
#include <map>

#include "base/error.h"
#include "graph/ops/collectives.h"
#include "parallel/prefetch_parameters.h"

namespace weft {
namespace {

bool is_sharded(const DataParallel& mesh) { return mesh.dp > 1 && mesh.shard != Shard::kNone; }

class Distributor {
 public:
  Distributor(Graph* graph, const DataParallel& mesh, std::vector<Bucket> buckets)
      : graph_(*graph), mesh_(mesh), buckets_(std::move(buckets)) {}

  std::vector<Bucket> run() {
    std::vector<Update> updates;
    for (Bucket& b : buckets_) {
      lay_out_parameters(b);
      if (has_gradients(b)) lay_out_gradients(b);
    }
    reduce_gradients();
    for (const Bucket& b : buckets_) add_updates(b, &updates);
    graph_.updates = std::move(updates);
    if (mesh_.dp > 1 && mesh_.shard == Shard::kZero3) prefetch_parameters(&graph_, buckets_);
    return std::move(buckets_);
  }

 private:
  static bool has_gradients(const Bucket& b) {
    return std::any_of(b.gradients.begin(), b.gradients.end(), [](Ref g) { return bool(g); });
  }
  int64_t shard_elements(const Bucket& b) const { return b.elements / mesh_.dp; }
  int64_t shard_begin(const Bucket& b) const { return mesh_.rank * shard_elements(b); }

  static std::string bucket_name(const Bucket& b, const char* what) {
    return fmt::format("bucket{}{}", b.index, what);
  }
  Ref add_bucket(std::string name, Shape shape, Dtype dtype, ValueKind kind) {
    Value v{std::move(name), std::move(shape), dtype, kind};
    v.is_bucket = true;
    return graph_.add(std::move(v));
  }

  void lay_out_parameters(Bucket& b) {
    const Dtype dtype = graph_[b.parameters[0]].dtype;
    const bool cut = mesh_.dp > 1 && mesh_.shard == Shard::kZero3;
    const Shape shape = {cut ? shard_elements(b) : b.elements};
    const Ref held = add_bucket(bucket_name(b, ".parameters"), shape, dtype, ValueKind::kParameter);
    if (cut) {
      b.param_shard = held;
      for (size_t i = 0; i < b.parameters.size(); ++i) hold_segment(b, i);
      return;
    }
    b.params = held;
    for (size_t i = 0; i < b.parameters.size(); ++i) {
      Value& p = graph_[b.parameters[i]];
      p.base = held;
      p.base_offset = b.offsets[i];
      p.is_saved = p.is_saved && b.index % mesh_.dp == mesh_.rank;
    }
  }

  // A view of [begin, end) of a tensor that is (or would be) at `offset` of a bucket.
  Ref add_segment(Ref whole, ValueKind kind, Ref base, int64_t base_begin, int64_t offset,
                  std::pair<int64_t, int64_t> range) {
    Value v = graph_[whole];
    const auto [begin, end] = range;
    Portion p = portion_of(v);
    if (end - begin != p.end) v.name = fmt::format("{}({}:{})", v.name, begin, end);
    p.begin = begin;
    p.end = end;
    v.shape = {end - begin};
    v.portion = std::move(p);
    v.kind = kind;
    v.base = base;
    v.base_offset = offset + begin - base_begin;
    return graph_.add(std::move(v));
  }

  // zero3: the tensors themselves exist only while gathered; only segments are stored.
  void hold_segment(Bucket& b, size_t i) {
    const Ref whole = b.parameters[i];
    const auto range = owned_range(graph_, b, i, mesh_.dp, mesh_.rank);
    if (range.first < range.second) {
      segments_[whole.id] = add_segment(whole, ValueKind::kParameter, b.param_shard, shard_begin(b),
                                        b.offsets[i], range);
    }
    graph_[whole].kind = ValueKind::kActivation;
  }

  // ------------------------------------------------------------------ gradients
  int64_t groups_here() const { return mesh_.groups / (mesh_.is_pass_major() ? 1 : mesh_.dp); }
  int64_t group_leaves() const {
    const int64_t leaves = mesh_.num_passes * int64_t{mesh_.is_pass_major() ? mesh_.dp : 1};
    ensure(leaves % groups_here() == 0, "groups of unequal size");
    return leaves / groups_here();
  }
  // The sums that the tree has open at once: log2 of the groups, and one more for a group that is
  // itself being summed (exec/slots.h).
  int num_slots() const {
    const int levels = static_cast<int>(std::bit_width(static_cast<uint64_t>(groups_here()))) - 1;
    return group_leaves() > 1 ? levels + 1 : std::max(1, levels);
  }
  // Whether no whole gradients are kept from one pass to the next.
  bool cuts_every_pass() const {
    return mesh_.is_pass_major() || (is_sharded(mesh_) && mesh_.shard >= Shard::kZero2);
  }
  // The accumulators of whole buckets exist where a rank keeps whole gradients.
  bool has_bucket_slots() const { return mesh_.is_exact && !mesh_.is_pass_major(); }

  void lay_out_gradients(Bucket& b) {
    const Dtype dtype = graph_[first_gradient(b)].dtype;
    const bool kept = !cuts_every_pass() || mesh_.num_passes == 1;
    const int64_t slots = has_bucket_slots() ? num_slots() : 1;
    b.grads = add_bucket(bucket_name(b, ".gradients"), {slots * b.elements}, dtype,
                         kept ? ValueKind::kGradient : ValueKind::kActivation);
    for (size_t i = 0; i < b.gradients.size(); ++i) {
      if (!b.gradients[i]) continue;
      Value& g = graph_[b.gradients[i]];
      g.base = b.grads;
      g.base_offset = b.offsets[i];
    }
    if (!is_sharded(mesh_) && !mesh_.is_pass_major()) return;
    if (!cuts_every_pass()) {
      // In place: the sum of the shard overwrites this rank's own addend.
      Value v{
          bucket_name(b, ".gradients.shard"), {shard_elements(b)}, dtype, ValueKind::kActivation};
      v.base = b.grads;
      v.base_offset = shard_begin(b);
      b.grad_shard = graph_.add(std::move(v));
      return;
    }
    const int64_t shard_slots = mesh_.is_pass_major() ? num_slots() : 1;
    b.grad_shard = add_bucket(bucket_name(b, ".gradients.shard"), {shard_slots * shard_elements(b)},
                              dtype, ValueKind::kGradient);
    if (!is_sharded(mesh_)) lay_out_sums(b);
  }

  // Strategy none with gradients that are cut after every pass: a pass writes a leaf, and the
  // update reads a gradient of the same name in a bucket of gathered sums.
  void lay_out_sums(Bucket& b) {
    b.grad_sums = add_bucket(bucket_name(b, ".gradients.sums"), {b.elements}, graph_[b.grads].dtype,
                             ValueKind::kGradient);
    for (Ref g : b.gradients) {
      if (!g) continue;
      Value sum = graph_[g];
      graph_[g].name += ".leaf";
      sum.base = b.grad_sums;
      sums_[g.id] = graph_.add(std::move(sum));
    }
  }

  Ref first_gradient(const Bucket& b) const {
    return *std::find_if(b.gradients.begin(), b.gradients.end(), [](Ref g) { return bool(g); });
  }

  // ------------------------------------------------------------------ the pass list
  // Walks the list once: assigns accumulators to the writers of exact gradients, and inserts a
  // bucket's collective after its last writer.
  void reduce_gradients() {
    for (size_t i = 0; i < buckets_.size(); ++i) {
      for (Ref g : buckets_[i].gradients) {
        if (g) bucket_of_[g.id] = i;
      }
    }
    count_writers();
    const std::vector<Node> nodes = std::move(graph_.pass);
    graph_.pass.clear();
    for (const Node& node : nodes) {
      graph_.pass.push_back(node);
      if (has_bucket_slots()) accumulate(node);
      for (Ref r : node.outputs) {
        const auto found = r ? bucket_of_.find(r.id) : bucket_of_.end();
        if (found == bucket_of_.end() || --writes_left_[found->second] > 0) continue;
        if (mesh_.dp > 1) add_reduction(buckets_[found->second]);
      }
    }
  }

  void count_writers() {
    writes_left_.assign(buckets_.size(), 0);
    for (const Node& node : graph_.pass) {
      for (Ref r : node.outputs) {
        const auto found = r ? bucket_of_.find(r.id) : bucket_of_.end();
        if (found == bucket_of_.end()) continue;
        ++writes_left_[found->second];
        ++writers_[r.id];
      }
    }
  }

  void set_slots(const Bucket& b, NodeRun* run) const {
    run->slots = num_slots();
    run->slot_stride = b.elements;
    run->group_leaves = group_leaves();
  }

  // A node that can, and is the only writer of its gradients, adds into the accumulators as it
  // stores; any other gradient of this pass is first written to a separate leaf.
  void accumulate(const Node& node) {
    std::vector<Ref> written;
    for (Ref r : node.outputs) {
      if (r && bucket_of_.contains(r.id)) written.push_back(r);
    }
    if (written.empty()) return;
    const bool alone =
        std::all_of(written.begin(), written.end(), [&](Ref r) { return writers_.at(r.id) == 1; });
    if (node.op->traits.adds_into_slots && alone) {
      set_slots(buckets_[bucket_of_.at(written[0].id)], &graph_.pass.back().run);
      return;
    }
    Node& writer = graph_.pass.back();
    std::vector<Node> sums;
    for (Ref& r : writer.outputs) {
      if (!r || !bucket_of_.contains(r.id)) continue;
      const Ref gradient = r, leaf = leaf_of(gradient);
      r = leaf;
      if (++written_[gradient.id] < writers_.at(gradient.id)) continue;
      Node sum{&kAccumulateOp, {leaf}, {gradient}, {}, node.layer};
      set_slots(buckets_[bucket_of_.at(gradient.id)], &sum.run);
      sums.push_back(std::move(sum));
    }
    for (Node& sum : sums) graph_.pass.push_back(std::move(sum));
  }

  Ref leaf_of(Ref gradient) {
    const auto found = leaves_.find(gradient.id);
    if (found != leaves_.end()) return found->second;
    Value v = graph_[gradient];
    v.name += ".leaf";
    v.kind = ValueKind::kActivation;
    v.base = Ref{};
    v.base_offset = 0;
    return leaves_[gradient.id] = graph_.add(std::move(v));
  }

  void add_reduction(const Bucket& b) {
    Node node = data_collective(&kAllReduceOp, {b.grads}, {b.grads}, b.layer);
    node.run.slot_stride = b.elements;  // the sum of all groups is in the first accumulator
    if (b.grad_shard) {
      node.op = &kReduceScatterOp;
      node.outputs = {b.grad_shard};
    }
    if (mesh_.is_pass_major()) {
      node.op = &kAllToAllOp;
      node.outputs.push_back(add_bucket(graph_[b.grads].name + ".leaves", {b.elements}, Dtype::kF32,
                                        ValueKind::kActivation));
      node.run.slots = num_slots();
      node.run.slot_stride = shard_elements(b);
      node.run.group_leaves = group_leaves();
    }
    node.run.last_pass_only = !cuts_every_pass();
    graph_.pass.push_back(std::move(node));
    if (!b.grad_sums) return;
    Node gather = data_collective(&kAllGatherOp, {b.grad_shard}, {b.grad_sums}, b.layer);
    gather.run.last_pass_only = true;
    graph_.pass.push_back(std::move(gather));
  }

  // ------------------------------------------------------------------ updates
  void add_updates(const Bucket& b, std::vector<Update>* updates) {
    for (size_t i = 0; i < b.parameters.size(); ++i) {
      if (!b.gradients[i]) continue;
      if (!is_sharded(mesh_)) {
        const auto sum = sums_.find(b.gradients[i].id);
        updates->push_back({b.parameters[i], sum == sums_.end() ? b.gradients[i] : sum->second});
        continue;
      }
      const auto range = owned_range(graph_, b, i, mesh_.dp, mesh_.rank);
      if (range.first == range.second) continue;
      const Ref parameter = mesh_.shard == Shard::kZero3
                                ? segments_.at(b.parameters[i].id)
                                : add_segment(b.parameters[i], ValueKind::kActivation, b.params, 0,
                                              b.offsets[i], range);
      const Ref gradient = add_segment(b.gradients[i], ValueKind::kActivation, b.grad_shard,
                                       shard_begin(b), b.offsets[i], range);
      graph_[gradient].parameter = parameter;
      updates->push_back({parameter, gradient});
    }
  }

  Graph& graph_;
  DataParallel mesh_;
  std::vector<Bucket> buckets_;
  std::map<int, size_t> bucket_of_;  // by gradient
  std::map<int, int> writers_;       // by gradient
  std::map<int, int> written_;       // by gradient: writers seen so far
  std::vector<int> writes_left_;     // by bucket
  std::map<int, Ref> segments_;      // by parameter: what zero3 stores of it
  std::map<int, Ref> leaves_;        // by gradient
  std::map<int, Ref> sums_;          // by gradient: its gathered sum
};

}  // namespace

std::vector<Bucket> apply_data_parallel(Graph* graph, const DataParallel& mesh) {
  ensure(graph->finish.empty(), "data parallelism comes before the optimizer");
  if (!mesh.needs_pass()) return {};
  return Distributor(graph, mesh, make_buckets(*graph, mesh.dp)).run();
}

void apply_data_parallel(Graph* graph, const DataParallel& mesh, const BucketPlaces& places) {
  ensure(graph->finish.empty() && graph->updates.empty(), "a graph with updates has own buckets");
  Distributor(graph, mesh, find_buckets(*graph, places)).run();
}

// The order is that of the buckets on every rank, also where a rank updates nothing of a bucket:
// each gather follows the updates of its bucket and precedes those of the next, which overlap with
// it.
void add_parameter_gathers(Graph* graph, const std::vector<Bucket>& buckets,
                           const DataParallel& mesh) {
  if (mesh.dp == 1 || (mesh.shard != Shard::kZero1 && mesh.shard != Shard::kZero2)) return;
  std::map<int, size_t> index_of;  // by the bucket's value
  for (size_t i = 0; i < buckets.size(); ++i) index_of[buckets[i].params.id] = i;
  std::vector<Node> nodes;
  size_t gathered = 0;
  const auto gather_before = [&](size_t end) {
    for (; gathered < end; ++gathered) {
      const Bucket& b = buckets[gathered];
      if (b.is_frozen || !b.grads) continue;
      nodes.push_back(data_collective(&kAllGatherOp, {b.params}, {b.params}, b.layer));
    }
  };
  for (Node& node : graph->finish) {
    if (node.op->traits.is_update) gather_before(index_of.at((*graph)[node.inputs[0]].base.id));
    nodes.push_back(std::move(node));
  }
  gather_before(buckets.size());
  graph->finish = std::move(nodes);
}

}  // namespace weft
