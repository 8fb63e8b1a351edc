// train/gradients.cpp: the owner of a gradient is the rank that keeps the states of its parameter.
#include "train/gradients.h"

#include "graph/portion.h"

namespace weft {

std::vector<HeldGradient> held_gradients(const Executor& executor, const Layout& layout) {
  const Graph& graph = executor.plan().graph;
  const bool is_sharded = layout.dp > 1 && layout.shard != Shard::kNone;
  std::vector<HeldGradient> all;
  for (const Update& u : graph.updates) {
    const Value& g = graph[u.gradient];
    const Portion p = portion_of(graph[u.parameter]);
    if (portion_elements(p) == 0) continue;
    all.push_back({{p.name + "#grad", p.shape, g.dtype, p.offset, p.extent, p.begin, p.end,
                    executor.data(u.gradient)},
                   is_sharded ? g.is_counted : graph[u.parameter].is_saved,
                   g.copies == 1});
  }
  return all;
}

bool is_replicated_vector(const Slice& slice) {
  return slice.shape.size() == 1 && slice.extent == slice.shape;
}

}  // namespace weft
