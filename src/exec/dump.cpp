// exec/dump.cpp: names, offsets and lanes of every node, as explained in the legend.
#include "exec/dump.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "graph/ops/collectives.h"

namespace weft {
namespace {

constexpr const char* kLegend =
    R"(one line per node, in the order in which a rank runs them:
  NUMBER OPERATION LAYER  WRITTEN, ... <- READ, ... | bytes written | lane
operation: collectives with their axis, tp (tensor parallel) or dp (data parallel)
layer: of the model; - for embedding, head, loss and optimizer
written: name (shape) dtype [place]. Places:
  [OFFSET until N]  in the step region, at that byte; the memory is free again after node N
  [kept]            outlives the step, at its own place (the list of kept values)
  [added]           accumulated: the sum over micro-batches, leaves or uses
  [updated]         kept; read and updated in place
names: parameters have the names of the model's files
  NAME[A:B]         a part of a parameter: rows (or columns) A to B of its tensor
  NAME#grad         its gradient; NAME#grad.leaf: an addend of it in exact mode
  NAME#STATE        a state of the optimizer, as NAME#m; NAME#master: the fp32 master weights
  NAME#squares      partial sums of squares, for the gradient norm
  d.NAME            the gradient of an activation
  NAME.partial      this rank's addend of a sum over ranks
  NAME.again        an activation recomputed for the backward pass
  bucketN.WHAT      parameters or gradients that one collective moves; .shard: this rank's part of it
  NAME.gatheredN    a parameter of a bucket that was gathered before use (zero3)
  NAME~2            the second value of that name
lanes: compute; communication N: the N-th collective that overlaps the computation (async)
)";

class Dump {
 public:
  explicit Dump(const Plan& plan)
      : plan_(plan), graph_(plan.graph), names_(unique_names(plan.graph)) {}

  std::string text() {
    text_ = kLegend;
    add_kept();
    const int passes = plan_.options.num_passes;
    add_list(
        graph_.pass, plan_.pass_schedule,
        fmt::format("pass: {} nodes, {}", graph_.pass.size(),
                    passes == 1 ? std::string("once per step")
                                : fmt::format("{} times per step, once per micro-batch", passes)));
    add_list(graph_.finish, plan_.finish_schedule,
             fmt::format("finish: {} nodes, once per step", graph_.finish.size()));
    int64_t most = 0;
    for (const Place& p : plan_.memory.scratch) most = std::max(most, p.bytes);
    text_ +=
        fmt::format("kept {} bytes, step region {} bytes, of which one node's scratch up to {}\n\n",
                    plan_.memory.persistent_bytes, plan_.memory.step_bytes, most);
    return std::move(text_);
  }

 private:
  std::string describe(Ref r) const {
    return fmt::format("{} {} {}", names_[static_cast<size_t>(r.id)], to_string(graph_[r].shape),
                       dtype_name(graph_[r].dtype));
  }

  // The place of the value, or of the one that contains it.
  const Place& place_of(const Graph::Storage& s) const {
    return plan_.memory.places[static_cast<size_t>(s.root.id)];
  }

  void add_kept() {
    text_ += "\nkept values: kind, name, shape, dtype, bytes\n";
    for (size_t i = 0; i < graph_.values.size(); ++i) {
      const Ref r{static_cast<int>(i)};
      const Graph::Storage s = graph_.storage_of(r);
      if (place_of(s).region != Place::Region::kPersistent) continue;
      std::string where;
      if (!(s.root == r)) {
        where = fmt::format(", in {} at byte {}", names_[static_cast<size_t>(s.root.id)],
                            s.offset_bytes);
      }
      text_ += fmt::format("  {:<10} {}  {} bytes{}\n", kind_name(graph_[r].kind), describe(r),
                           value_bytes(graph_[r]), where);
    }
  }

  void add_list(const std::vector<Node>& nodes, const Schedule& schedule,
                const std::string& title) {
    text_ += "\n" + title + "\n";
    for (size_t t = 0; t < nodes.size(); ++t) add_node(nodes[t], schedule.nodes[t]);
  }

  void add_node(const Node& n, const ScheduledNode& scheduled) {
    const NodeReads reads = reads_of(n);
    std::string written, read;
    int64_t bytes = 0;
    const auto write = [&](Ref r, const std::string& place) {
      written += fmt::format("{}{} [{}]", written.empty() ? "" : ", ", describe(r), place);
      bytes += value_bytes(graph_[r]);
    };
    for (Ref r : n.outputs) {
      if (r) write(r, describe_place(n, r));
    }
    for (Ref r : reads.updated) write(r, "updated");
    for (Ref r : reads.read) {
      read += (read.empty() ? "" : ", ") + names_[static_cast<size_t>(r.id)];
    }
    const std::string layer = n.layer < 0 ? "-" : std::to_string(n.layer);
    std::string op = op_name(n.op);
    if (is_collective(n.op)) op += n.as<CollectiveAttr>().axis == Axis::kTensor ? " tp" : " dp";
    text_ += fmt::format("{:5} {:17} {:>3}  {} <- {} | {} bytes | {}\n", number_++, op, layer,
                         written, read, bytes, describe_lane(scheduled));
  }

  // As the bindings do it. Gradients that are rewritten every pass are not in a gradient bucket:
  // they are stored.
  bool adds(const Node& n, Ref out) const {
    const bool has_passes = plan_.options.num_passes > 1;
    if (n.op->traits.writes_gradients) {
      if (!graph_[out].parameter) return false;  // the gradient of an activation
      return !n.run.first_writer ||
             (has_passes && graph_[graph_.storage_of(out).root].kind == ValueKind::kGradient);
    }
    if (n.op == &kAccumulateOp) return has_passes;
    if (n.op == &kReduceScatterOp) return has_passes && !n.run.last_pass_only;
    return n.op == &kAllToAllOp && out == n.outputs[0];  // the other: the leaves that arrive
  }

  std::string describe_place(const Node& n, Ref out) const {
    const Graph::Storage s = graph_.storage_of(out);
    const Place& p = place_of(s);
    if (p.region == Place::Region::kStep) {
      return fmt::format("{} until {}{}", p.offset + s.offset_bytes, p.last,
                         adds(n, out) ? ", added" : "");
    }
    if (std::find(n.inputs.begin(), n.inputs.end(), out) != n.inputs.end()) return "updated";
    return adds(n, out) ? "added" : "kept";
  }

  // "compute", "compute, waits for communication 3", "communication 4"
  static std::string describe_lane(const ScheduledNode& s) {
    std::string text = s.is_async ? fmt::format("communication {}", s.number) : "compute";
    if (s.wait_for > 0) text += fmt::format(", waits for communication {}", s.wait_for - 1);
    return text;
  }

  const Plan& plan_;
  const Graph& graph_;
  const std::vector<std::string> names_;
  std::string text_;
  int number_ = 0;
};

}  // namespace

std::vector<std::string> unique_names(const Graph& graph) {
  std::set<std::string> taken;
  for (const Value& v : graph.values) taken.insert(v.name);
  std::set<std::string> seen;
  std::vector<std::string> names;
  for (const Value& v : graph.values) {
    std::string name = v.name;
    for (int i = 2; !seen.insert(name).second; ++i) {
      name = fmt::format("{}~{}", v.name, i);
      while (taken.contains(name)) name += "~";  // another value's own name
    }
    names.push_back(std::move(name));
  }
  return names;
}

NodeReads reads_of(const Node& node) {
  NodeReads reads;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (!node.inputs[i]) continue;
    const bool is_updated = node.op->traits.is_update && i != 1 && i != 2;
    (is_updated ? reads.updated : reads.read).push_back(node.inputs[i]);
  }
  return reads;
}

std::string dump_plan(const Plan& plan) { return Dump(plan).text(); }

}  // namespace weft
