// parallel/recompute.cpp: clones of cheap forward nodes, placed before their first backward reader.
#include "parallel/recompute.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "graph/op_rule.h"

namespace weft {
namespace {

class Recompute {
 public:
  explicit Recompute(Graph* graph) : graph_(*graph) {}

  void run() {
    size_t begin = 0;
    while (begin < graph_.pass.size() && !graph_.pass[begin].op->traits.begins_backward) ++begin;
    for (size_t i = 0; i < begin; ++i) {
      for (Ref out : graph_.pass[i].outputs) {
        if (out) producer_[out.id] = i;
      }
    }
    for (size_t i = begin; i < graph_.pass.size(); ++i) {
      for (Ref r : graph_.pass[i].inputs) gradients_.insert({graph_.pass[i].op, r.id});
    }
    std::map<Key, int> forward_nodes;
    for (size_t i = 0; i < begin; ++i) {
      const Node& node = graph_.pass[i];
      if (!node.op->repeated_by) continue;
      const Key key{node.op->repeated_by, node.inputs[0].id};
      if (++forward_nodes[key] > 1) gradients_.erase(key);
    }
    nodes_.assign(graph_.pass.begin(), graph_.pass.begin() + static_cast<std::ptrdiff_t>(begin));
    for (size_t i = begin; i < graph_.pass.size(); ++i) add_backward(graph_.pass[i]);
    ensure(waiting_.empty(), "a node waits for a missing gradient");
    graph_.pass = std::move(nodes_);
  }

 private:
  // A gradient that also computes a forward node's value: its operation, and the first input of the
  // forward node, which it reads too. Where several forward nodes share a key (GELU of both kinds),
  // the match is ambiguous: none is waited for.
  using Key = std::pair<Op, int>;
  struct Reader {
    Node node;
    size_t input;  // the awaited one
  };

  const Node* producer(Ref r) const {
    const auto found = producer_.find(r.id);
    return found == producer_.end() ? nullptr : &nodes_[found->second];
  }

  Ref add_copy(Ref of) {
    Value copy = graph_[of];
    copy.name += ".again";
    return graph_.add(std::move(copy));
  }

  void add_backward(const Node& node) {
    if (wait_for_gradient(node)) return;
    push(node);
    const size_t gradient = nodes_.size() - 1;
    const std::vector<Ref> inputs = node.inputs;
    for (Ref r : inputs) release({node.op, r.id}, gradient);
  }

  // Nodes that only write parameter gradients can wait: nothing in the pass reads those.
  bool wait_for_gradient(const Node& node) {
    const bool has_time = std::all_of(node.outputs.begin(), node.outputs.end(),
                                      [&](Ref r) { return r && graph_[r].parameter; });
    for (size_t k = 0; has_time && k < node.inputs.size(); ++k) {
      const Node* forward = producer(node.inputs[k]);
      if (!forward || !forward->op->repeated_by) continue;
      const Key key{forward->op->repeated_by, forward->inputs[0].id};
      if (!gradients_.contains(key)) continue;
      waiting_[key].push_back({node, k});
      return true;
    }
    return false;
  }

  void push(Node node) {
    // The head reads the last norm's output right away: nothing to recompute there.
    for (size_t k = 0; !node.op->traits.begins_backward && k < node.inputs.size(); ++k) {
      node.inputs[k] = repeated(node.inputs[k]);
    }
    nodes_.push_back(std::move(node));
  }

  // The recomputed value, where it is cheap; else the value itself.
  Ref repeated(Ref value) {
    if (const auto found = repeated_.find(value.id); found != repeated_.end()) return found->second;
    const Node* forward = producer(value);
    const Ref again{static_cast<int>(graph_.values.size())};
    Node repeat;
    if (!forward || !forward->op->repeat(*forward, value, again, &repeat)) return value;
    add_copy(value);
    nodes_.push_back(std::move(repeat));
    return repeated_[value.id] = again;
  }

  // The gradient has been reached: it gets one more output, which the waiting nodes read.
  void release(const Key& key, size_t gradient) {
    const auto readers = waiting_.find(key);
    if (readers == waiting_.end()) return;
    const Reader& first = readers->second[0];
    const Ref again = add_copy(first.node.inputs[first.input]);
    nodes_[gradient].outputs.push_back(again);
    for (Reader& reader : readers->second) {
      reader.node.inputs[reader.input] = again;
      push(std::move(reader.node));
    }
    waiting_.erase(readers);
  }

  Graph& graph_;
  std::map<int, size_t> producer_;  // of forward values
  std::set<Key> gradients_;
  std::map<Key, std::vector<Reader>> waiting_;
  std::map<int, Ref> repeated_;
  std::vector<Node> nodes_;
};

}  // namespace

void recompute_cheap_values(Graph* graph) { Recompute(graph).run(); }

}  // namespace weft
