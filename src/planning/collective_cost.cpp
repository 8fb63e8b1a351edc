// planning/collective_cost.cpp: latency and bandwidth of ring, tree, direct and hierarchical forms.
//
// A phase moves (n-1)/n of a tensor of B bytes into every rank: an all_gather, a reduce_scatter and
// an all_to_all are one, an all_reduce is two.
#include "planning/collective_cost.h"

#include <algorithm>
#include <bit>

#include "base/error.h"
#include "comm/nodes/node_stages.h"

namespace weft {
namespace {

double seconds_of(const LinkSpeed& link, double messages, double bytes) {
  if (messages == 0 && bytes == 0) return 0;
  return messages * link.latency_us * 1e-6 + (bytes > 0 ? bytes / link.gb_per_s * 1e-9 : 0);
}

double log2_steps(int64_t n) {
  return static_cast<double>(std::bit_width(static_cast<uint64_t>(n - 1)));
}

double share_of_others(int64_t n) { return static_cast<double>(n - 1) / static_cast<double>(n); }

// One phase. B: bytes of the whole tensor.
struct Phase {
  const LinkSpeed& inside;
  LinkSpeed between;  // this group's part of a node's link
  int64_t n, m, N;
  double B;

  // The slower of two links that are used at the same time, after the messages of both.
  double both(double inside_messages, double inside_bytes, double between_messages,
              double between_bytes) const {
    return seconds_of(inside, inside_messages, 0) + seconds_of(between, between_messages, 0) +
           std::max(seconds_of(inside, 0, inside_bytes), seconds_of(between, 0, between_bytes));
  }

  // A chunk travels all hops but one; on several nodes each node is left once.
  double ring() const {
    const double bytes = share_of_others(n) * B, hops = static_cast<double>(n - 1);
    if (N == 1) return seconds_of(inside, hops, bytes);
    const double leaving = std::min(hops, static_cast<double>(N));
    return both(hops - leaving, m > 1 ? bytes : 0, leaving, bytes);
  }

  double tree() const {
    const double bytes = share_of_others(n) * B;
    return both(log2_steps(m), m > 1 ? bytes : 0, log2_steps(N), N > 1 ? bytes : 0);
  }

  // Every rank to every other: what leaves a node is sent once per pair of ranks.
  double direct() const {
    const double local = static_cast<double>(m - 1), far = static_cast<double>(n - m);
    const double part = B / static_cast<double>(n);
    return both(local, local * part, far, static_cast<double>(m) * far * part);
  }

  // Inside the nodes, then between them, one group for each of the m parts, all at once.
  double stages(double inside_messages, double between_messages) const {
    return seconds_of(inside, inside_messages, share_of_others(m) * B) +
           seconds_of(between, between_messages, share_of_others(N) * B);
  }

  double hierarchical() const { return stages(static_cast<double>(m - 1), log2_steps(N)); }

  // Of comm/nodes: direct in both stages. An all_reduce is one call inside a node, a reduce_scatter
  // or an all_gather one for each node's part.
  double nodes(CommOp op) const {
    const int64_t calls = op == CommOp::kAllReduce ? 1 : N;
    return stages(static_cast<double>(calls * (m - 1)), static_cast<double>(N - 1));
  }
};

// What runs on CPUs: shared memory and gloo are direct, and comm/nodes joins them.
double cpu_seconds(const Phase& p, CommOp op, Dtype dtype) {
  const double bytes = op == CommOp::kAllReduce ? p.B : p.B / static_cast<double>(p.n);
  const bool has_stages =
      can_have_node_stages(p.n, p.m) && has_node_stages(op, static_cast<int64_t>(bytes), dtype);
  return has_stages ? p.nodes(op) : p.direct();
}

// auto on GPUs: NCCL has rings, and trees for an all_reduce or where a group has one rank per node
// (from version 2.23).
double phase_seconds(const Phase& p, const Cluster& cluster, CommOp op, Dtype dtype) {
  const std::string& algorithm = cluster.algorithm;
  if (algorithm == "ring") return p.ring();
  if (algorithm == "tree") return p.tree();
  if (algorithm == "direct") return p.direct();
  if (algorithm == "hierarchical") return p.hierarchical();
  if (!cluster.has_gpus()) return cpu_seconds(p, op, dtype);
  const bool has_tree = op == CommOp::kAllReduce || p.m == 1;
  return has_tree ? std::min(p.ring(), p.tree()) : p.ring();
}

}  // namespace

int64_t ranks_on_a_node(const Layout& layout, const Cluster& c) {
  const int64_t ranks = layout.num_ranks();
  const std::string needs =
      fmt::format("parallel.dp={} x parallel.tp={} needs {} ranks", layout.dp, layout.tp, ranks);
  if (ranks > c.nodes * c.devices_per_node)
    throw UserError(
        fmt::format("{}, but the cluster has {} node{} x {} devices = {}", needs, c.nodes,
                    c.nodes == 1 ? "" : "s", c.devices_per_node, c.nodes * c.devices_per_node),
        "lower parallel.dp, or raise nodes in the cluster file");
  if (ranks <= c.devices_per_node) return ranks;
  if (ranks % c.devices_per_node != 0)
    throw UserError(
        fmt::format("{}, which do not fill nodes of {} devices", needs, c.devices_per_node),
        "choose a multiple of devices_per_node");
  if (c.devices_per_node % layout.tp != 0)
    throw UserError(fmt::format("parallel.tp={} does not divide the {} devices of a node",
                                layout.tp, c.devices_per_node),
                    "a tensor-parallel group must lie inside a node");
  return c.devices_per_node;
}

GroupPlace place_group(const Layout& layout, const Cluster& cluster, Axis axis, int64_t ranks) {
  if (axis == Axis::kTensor) return {ranks, ranks, 1};
  const int64_t on_a_node = ranks_on_a_node(layout, cluster);
  return {ranks, on_a_node / layout.tp, layout.tp};
}

GroupPlace place_world(const Layout& layout, const Cluster& cluster) {
  return {layout.num_ranks(), ranks_on_a_node(layout, cluster), 1};
}

double collective_seconds(const Cluster& cluster, const GroupPlace& group, CommOp op, double bytes,
                          Dtype dtype) {
  if (group.ranks <= 1) return 0;
  ensure(group.ranks % group.per_node == 0, "a group that does not fill its nodes");
  LinkSpeed between = cluster.between;
  between.gb_per_s /= static_cast<double>(group.sharers);
  const double whole = op == CommOp::kAllGather ? bytes * static_cast<double>(group.ranks) : bytes;
  const Phase phase{cluster.inside, between, group.ranks, group.per_node, group.nodes(), whole};
  const int phases = op == CommOp::kAllReduce ? 2 : 1;
  return phases * phase_seconds(phase, cluster, op, dtype);
}

}  // namespace weft
