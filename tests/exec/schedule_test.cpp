// tests/exec/schedule_test.cpp: two lanes: which node waits, and that no memory is shared too
// early.
#include "exec/schedule.h"

#include <gtest/gtest.h>

#include <map>

#include "exec/memory_plan.h"
#include "graph/autodiff.h"
#include "optim/updates.h"
#include "parallel/data_parallel.h"
#include "parallel/recompute.h"
#include "tests/graph/decoder_graph.h"

namespace weft {
namespace {

Graph rank_graph(Shard shard, int passes, bool exact) {
  Graph graph;
  const Ref losses = testing::trace_decoder(&graph, {.layers = 4});
  add_backward(&graph, losses, Dtype::kF32);
  recompute_cheap_values(&graph);
  const DataParallel mesh{2, 1, shard, passes, exact, exact ? 2 : 1};
  const std::vector<Bucket> buckets = apply_data_parallel(&graph, mesh);
  add_updates(&graph, find_optimizer("adamw"), {}, {});
  add_parameter_gathers(&graph, buckets, mesh);
  return graph;
}

int root(const Graph& graph, Ref r) {
  while (graph[r].base) r = graph[r].base;
  return r.id;
}

struct LaneLife {
  int first = 1 << 30, last = -1;
};

// From the first node that touches a value to the last, where an async node counts until another
// has waited for it. Computed independently, by walking forward from each node.
std::map<int, LaneLife> find_lives(const Graph& graph, const Schedule& schedule) {
  std::map<int, LaneLife> lives;
  const int n = static_cast<int>(graph.pass.size());
  for (int t = 0; t < n; ++t) {
    const ScheduledNode& s = schedule.nodes[static_cast<size_t>(t)];
    int end = t;
    if (s.is_async) {
      end = t + 1;
      while (end < n && schedule.nodes[static_cast<size_t>(end)].wait_for <= s.number) ++end;
      end = std::min(end, n - 1);
    }
    const Node& node = graph.pass[static_cast<size_t>(t)];
    for (const auto* refs : {&node.inputs, &node.outputs}) {
      for (Ref r : *refs) {
        if (!r) continue;
        LaneLife& life = lives[root(graph, r)];
        life.first = std::min(life.first, t);
        life.last = std::max(life.last, end);
      }
    }
  }
  return lives;
}

class Lanes : public ::testing::TestWithParam<std::tuple<Shard, int, bool>> {};

TEST_P(Lanes, NothingIsOverwrittenWhileACollectiveUsesIt) {
  const auto [shard, passes, exact] = GetParam();
  const Graph graph = rank_graph(shard, passes, exact);
  const Schedule schedule = make_schedule(graph, graph.pass);
  const MemoryPlan plan = plan_memory(graph, passes);
  ASSERT_GT(schedule.num_async, 4);
  const std::map<int, LaneLife> lives = find_lives(graph, schedule);
  int compared = 0;
  for (auto a = lives.begin(); a != lives.end(); ++a) {
    for (auto b = std::next(a); b != lives.end(); ++b) {
      const Place& p = plan.places[static_cast<size_t>(a->first)];
      const Place& q = plan.places[static_cast<size_t>(b->first)];
      if (p.region != Place::Region::kStep || q.region != Place::Region::kStep) continue;
      if (p.offset >= q.offset + q.bytes || q.offset >= p.offset + p.bytes) continue;
      // They share bytes: one lifetime must end before the other begins; in place, where it begins.
      ++compared;
      EXPECT_TRUE(a->second.last <= b->second.first || b->second.last <= a->second.first)
          << graph.values[static_cast<size_t>(a->first)].name << " and "
          << graph.values[static_cast<size_t>(b->first)].name;
    }
  }
  EXPECT_GT(compared, 20);
}

TEST_P(Lanes, ReadersWaitAndFewAreInFlight) {
  const auto [shard, passes, exact] = GetParam();
  const Graph graph = rank_graph(shard, passes, exact);
  for (const auto* list : {&graph.pass, &graph.finish}) {
    const Schedule schedule = make_schedule(graph, *list);
    std::map<int, int> written;  // storage -> one past the number of the async node that touches it
    for (size_t t = 0; t < list->size(); ++t) {
      const ScheduledNode& s = schedule.nodes[t];
      for (const auto* refs : {&(*list)[t].inputs, &(*list)[t].outputs}) {
        for (Ref r : *refs) {
          if (!r) continue;
          if (s.is_async) {
            written[root(graph, r)] = s.number + 1;
          } else if (written.contains(root(graph, r))) {
            EXPECT_GE(s.wait_for, written[root(graph, r)]) << op_name((*list)[t].op);
          }
        }
      }
      if (!s.is_async) continue;
      EXPECT_GE(s.wait_for, s.number - kInFlight + 1);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shards, Lanes,
    ::testing::Values(std::tuple{Shard::kNone, 1, false}, std::tuple{Shard::kNone, 2, true},
                      std::tuple{Shard::kZero1, 2, false}, std::tuple{Shard::kZero2, 1, false},
                      std::tuple{Shard::kZero2, 2, true}, std::tuple{Shard::kZero3, 1, false},
                      std::tuple{Shard::kZero3, 2, true}));

}  // namespace
}  // namespace weft
