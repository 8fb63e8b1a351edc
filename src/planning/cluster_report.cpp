// planning/cluster_report.cpp: rank 0's graph with a time for every node, and what follows from it.
#include "planning/cluster_report.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/error.h"
#include "config/session.h"
#include "exec/loss_sums.h"
#include "exec/plan.h"
#include "io/hf_folder.h"
#include "planning/graphs.h"
#include "planning/snapshot_bytes.h"

namespace weft {
namespace {

// launch.snapshot_every: auto never costs more than this.
constexpr double kSnapshotCost = 0.02;

class StepModel {
 public:
  StepModel(const RunConfig& c, const Cluster& cluster, const Layout& layout, const Graph& graph)
      : cluster_(cluster),
        layout_(layout),
        graph_(graph),
        nowhere_(graph),
        options_{&cpu_kernels(), 1, static_cast<int>(c.num_passes()), layout.tp, layout.dp},
        costs_(cluster.device, c.compute_dtype()) {}

  StepTimes run(std::vector<CollectiveTime>* collectives) {
    const std::vector<TimedNode> pass = timed(graph_.pass), finish = timed(graph_.finish);
    const LaneRules rules{cluster_.device.node_us * 1e-6, cluster_.device.communication_share};
    StepTimes all = simulate_list(pass, rules, true);
    const StepTimes earlier = simulate_list(pass, rules, false);
    for (int p = 1; p < options_.num_passes; ++p) all.add(earlier);
    // A GPU updates all parameters in one launch.
    all.add(simulate_list(finish, {cluster_.has_gpus() ? 0 : rules.gap_s, rules.share}, true));
    StepTimes agreed;  // the loss and the token counts, and whether a signal arrived
    const WireItem loss{CommOp::kAllReduce, Axis::kData, layout_.dp, 1, kLossNumbers * int64_t{8}};
    if (layout_.dp > 1) agreed.in_line += note(loss, place(loss), Dtype::kI64, 1);
    agreed.in_line +=
        collective_seconds(cluster_, place_world(layout_, cluster_), CommOp::kAllReduce, 8);
    agreed.step = agreed.in_line;
    all.add(agreed);
    *collectives = std::move(collectives_);
    return all;
  }

 private:
  GroupPlace place(const WireItem& item) const {
    return place_group(layout_, cluster_, item.axis, item.ranks);
  }

  // Of a collective's elements; other nodes exchange little, in int64 or fp64.
  Dtype added_dtype(const Node& node) const {
    return is_collective(node.op) ? graph_[node.inputs.at(0)].dtype : Dtype::kI64;
  }

  std::vector<TimedNode> timed(const std::vector<Node>& list) {
    const Schedule schedule = make_schedule(graph_, list);
    const PlanContext context = plan_context(options_, nowhere_.view());
    std::vector<TimedNode> nodes;
    for (size_t i = 0; i < list.size(); ++i) {
      const Node& node = list[i];
      const OpBinding& binding = binding_of(node.op);
      const ScheduledNode& s = schedule.nodes[i];
      const bool is_pass = &list == &graph_.pass;
      const int times = is_pass && !node.run.last_pass_only ? options_.num_passes : 1;
      TimedNode made{{}, 0, s.is_async, s.wait_for, node.run.last_pass_only};
      std::vector<WireItem> wire;
      binding.wire(context, node, &wire);
      for (const WireItem& item : wire)
        made.communication += note(item, place(item), added_dtype(node), times);
      if (!is_collective(node.op) || wire.empty())
        made.work = costs_.of(binding.cost(nowhere_.view(), node));
      nodes.push_back(made);
    }
    return nodes;
  }

  // Seconds of the item's calls, which a step makes `times` times.
  double note(const WireItem& item, const GroupPlace& group, Dtype dtype, int times) {
    const auto calls = static_cast<double>(std::max<int64_t>(1, item.calls));
    const double bytes = static_cast<double>(item.bytes) / calls;
    const double seconds = calls * collective_seconds(cluster_, group, item.op, bytes, dtype);
    auto found = std::find_if(collectives_.begin(), collectives_.end(), [&](const auto& known) {
      return known.item.op == item.op && known.item.axis == item.axis &&
             known.item.ranks == item.ranks;
    });
    if (found == collectives_.end())
      found =
          collectives_.insert(found, {{item.op, item.axis, item.ranks, 0, 0}, group.nodes(), 0});
    found->item.calls += item.calls * times;
    found->item.bytes += item.bytes * times;
    found->seconds += seconds * times;
    return seconds;
  }

  const Cluster& cluster_;
  const Layout& layout_;
  const Graph& graph_;
  const Nowhere nowhere_;
  const PlanOptions options_;
  const NodeCosts costs_;
  std::vector<CollectiveTime> collectives_;
};

// 0: auto. None: "0", which turns snapshots off.
std::optional<int64_t> snapshot_steps(const std::string& text) {
  int64_t steps = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), steps);
  if (error != std::errc{} || end != text.data() + text.size()) return 0;
  return steps > 0 ? std::optional(steps) : std::nullopt;
}

std::optional<SurvivalPlan> survive_from_memory(const RunConfig& c, const ClusterReport& r) {
  const std::optional<int64_t> steps = snapshot_steps(c.launch.snapshot_every);
  if (!steps) return std::nullopt;
  const double step = r.times.step;
  SurvivalPlan plan;
  plan.recovery.secure_s =
      static_cast<double>(r.state_bytes) / r.cluster.device.snapshot_gb_per_s * 1e-9;
  // The partner's copy goes over the node's link meanwhile, and must be done before the next one.
  const double copied = r.nodes() > 1 ? static_cast<double>(r.state_bytes * r.ranks_per_node) /
                                            r.cluster.between.gb_per_s * 1e-9
                                      : 0;
  plan.recovery.recovery_s = r.cluster.failures.recovery_s;
  const double least = std::max(plan.recovery.secure_s / kSnapshotCost, copied);
  plan.recovery.interval_s = *steps > 0
                                 ? static_cast<double>(*steps) * step
                                 : best_interval_s(plan.recovery, r.failures_per_s(), step, least);
  plan.steps = std::llround(plan.recovery.interval_s / step);
  plan.goodput = goodput(plan.recovery, r.failures_per_s());
  return plan;
}

SurvivalPlan survive_from_storage(const RunConfig& c, const ClusterReport& r) {
  const double step = r.times.step;
  const double moved = static_cast<double>(r.checkpoint_bytes) / r.cluster.storage_gb_per_s * 1e-9;
  SurvivalPlan plan;
  plan.recovery.secure_s = c.checkpoint.async ? static_cast<double>(r.state_bytes) /
                                                    r.cluster.device.snapshot_gb_per_s * 1e-9
                                              : moved;
  plan.recovery.recovery_s = r.cluster.failures.restart_s + moved;
  plan.recovery.interval_s = c.checkpoint.every > 0
                                 ? static_cast<double>(c.checkpoint.every) * step
                                 : best_interval_s(plan.recovery, r.failures_per_s(), step, moved);
  plan.steps = std::llround(plan.recovery.interval_s / step);
  plan.goodput = goodput(plan.recovery, r.failures_per_s());
  return plan;
}

void add_notes(const RunConfig& c, ClusterReport* r) {
  const auto note = [&](std::string text) { r->notes.push_back(std::move(text)); };
  if (c.data.layout == "dynamic")
    note("data.layout dynamic: work is for a batch of the longest rows");
  if (c.data.layout == "pack")
    note("data.layout pack: work is for rows of one segment; shorter segments attend to less");
  if (c.train.tf32) note("train.tf32: device.tflops_fp32 must then be the speed of TF32");
  if (!r->fits())
    note(
        fmt::format("rank 0 needs more than the {:g} GB of device.memory_gb: this layout cannot "
                    "run there",
                    r->cluster.device.memory_gb));
  if (r->from_memory)
    note(
        "recovery from memory was tested with ranks of one machine, also on one GPU, and with CPU "
        "nodes in namespaces; of larger clusters its row is what it would bring");
}

}  // namespace

double ClusterReport::mfu() const {
  return flops / times.step * 1e-12 / cluster.device.peak_tflops;
}

double ClusterReport::failures_per_s() const {
  const double hours = cluster.failures.node_mtbf_hours;
  return hours > 0 ? static_cast<double>(nodes()) / (hours * 3600) : 0;
}

bool ClusterReport::fits() const {
  const double most = cluster.device.memory_gb * 1e9;
  return most == 0 || static_cast<double>(memory) <= most;
}

ClusterReport plan_cluster(const RunConfig& c, const Model& model, const Cluster& cluster) {
  ClusterReport r;
  r.cluster = cluster;
  r.layout = resolve_layout(c, model);
  r.ranks_per_node = ranks_on_a_node(r.layout, cluster);
  r.num_parameters = count_parameters(model);
  r.num_passes = c.num_passes();
  r.tokens = c.train.global_batch * c.data.seq_length;
  Graph graph = make_training_graph(c, model, r.layout, 0);
  if (cluster.has_gpus()) suit_device(&graph);
  const MemoryPlan memory = plan_memory(graph, static_cast<int>(r.num_passes));
  r.memory = memory.persistent_bytes + memory.step_bytes;
  r.state_bytes = snapshot_bytes(graph, c.has_masters());
  r.checkpoint_bytes = snapshot_bytes(c, model);
  for (const Node& node : graph.pass) r.flops += node_flops(graph, node);
  r.flops *= static_cast<double>(r.num_passes);
  r.times = StepModel(c, cluster, r.layout, graph).run(&r.collectives);
  r.from_memory = survive_from_memory(c, r);
  r.from_storage = survive_from_storage(c, r);
  add_notes(c, &r);
  return r;
}

ClusterReport plan_cluster(const RunConfig& c, const Cluster& cluster) {
  const HfFolder folder(resolve_model_path(c.model.path));
  const auto model = open_model(c, folder);
  check_positions(c, *model);
  return plan_cluster(c, *model, cluster);
}

}  // namespace weft
