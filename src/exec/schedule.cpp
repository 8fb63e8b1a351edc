// exec/schedule.cpp: which node waits for which.
#include "exec/schedule.h"

#include <algorithm>
#include <map>

#include "graph/op_rule.h"

namespace weft {
namespace {

// The value that owns the memory: views count as their bucket.
int storage_id(const Graph& graph, Ref r) { return graph.storage_of(r).root.id; }

}  // namespace

Schedule make_schedule(const Graph& graph, const std::vector<Node>& list) {
  Schedule made;
  std::map<int, int>
      touched;     // storage -> one past the number of the last async node that touches it
  int waited = 0;  // number of nodes certainly done here
  for (size_t t = 0; t < list.size(); ++t) {
    const Node& node = list[t];
    ScheduledNode s;
    s.is_async = is_collective(node.op) && node.run.async;
    if (s.is_async) {
      s.number = made.num_async++;
      // The compute thread waits here before it posts the node.
      s.wait_for = std::max(0, s.number - kInFlight + 1);
      for (const auto* refs : {&node.inputs, &node.outputs}) {
        for (Ref r : *refs) {
          if (r) touched[storage_id(graph, r)] = s.number + 1;
        }
      }
    } else {
      for (const auto* refs : {&node.inputs, &node.outputs}) {
        for (Ref r : *refs) {
          if (!r) continue;
          const auto found = touched.find(storage_id(graph, r));
          if (found != touched.end()) s.wait_for = std::max(s.wait_for, found->second);
        }
      }
    }
    for (; waited < s.wait_for; ++waited) made.done_at.push_back(static_cast<int>(t));
    made.nodes.push_back(s);
  }
  while (waited++ < made.num_async) made.done_at.push_back(static_cast<int>(list.size()));
  return made;
}

}  // namespace weft
