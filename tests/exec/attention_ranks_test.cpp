// tests/exec/attention_ranks_test.cpp: tensor-parallel ranks have the biases and the masks of their
// heads: together they compute what one rank does.
#include <gtest/gtest.h>

#include <thread>

#include "base/exact_sum.h"
#include "base/random.h"
#include "comm/shm/shm.h"
#include "exec/executor.h"
#include "graph/autodiff.h"
#include "kernel/cpu/level.h"
#include "parallel/tensor_parallel.h"
#include "tests/graph/decoder_graph.h"

namespace weft {
namespace {

constexpr int64_t kCutRows = 2, kCutPositions = 9, kCutHeads = 4, kCutHeadDim = 4,
                  kCutChannels = kCutHeads * kCutHeadDim, kCutVocab = 70;

// One attention between products.
struct Choice {
  ScoreBias bias = ScoreBias::kNone;
  bool drops = false;
  bool forgets_first_head = false;  // a fault: every rank computes as if its heads were the first
};

Graph cut_graph(const Choice& c, const TensorParallel& mesh) {
  Graph graph;
  Builder g(&graph, Dtype::kF32);
  const Ref ids = g.input("ids", {kCutRows, kCutPositions}, Dtype::kI32);
  const auto weight = [&](const char* name) {
    return g.parameter(name, {kCutChannels, kCutChannels});
  };
  AttentionCall call;
  call.heads = {kCutHeads, kCutHeads, kCutHeadDim};
  call.lengths = g.input("lengths", {kCutRows}, Dtype::kI32);
  call.bias = c.bias;
  if (c.bias == ScoreBias::kRelative) call.table = g.parameter("table", {6, kCutHeads});
  call.max_distance = 8;
  if (c.drops) {
    call.dropout = {
        .rate = 0.3, .seed = 9, .site = 1, .rows = g.input("rows", {kCutRows, 2}, Dtype::kI64)};
  }
  const Ref embed = g.parameter("embed", {kCutVocab, kCutChannels});
  const Ref x = ops::embedding(g, ids, embed, -1);
  call.values = {ops::linear(g, x, {weight("q"), weight("k"), weight("v")}, {})};
  const Ref attended = ops::attention(g, call);
  const Ref y = ops::linear(g, attended, {weight("o")}, {});
  add_backward(
      &graph,
      ops::head_loss(g, y, embed, g.input("targets", {kCutRows, kCutPositions}, Dtype::kI32), 4),
      Dtype::kF32);
  apply_tensor_parallel(&graph,
                        {{"embed", {0, 1, true}},
                         {"q", {0, kCutHeadDim}},
                         {"k", {0, kCutHeadDim}},
                         {"v", {0, kCutHeadDim}},
                         {"o", {1, kCutHeadDim}},
                         {"table", {1, 1}}},
                        mesh);
  for (Node& node : graph.pass) {
    const bool is_attention = node.op == &kAttentionOp || node.op == &kAttentionGradOp;
    if (is_attention && c.forgets_first_head) node.edit<AttentionAttr>().first_head = 0;
  }
  return graph;
}

struct Result {
  double loss = 0;
  std::map<std::string, std::vector<float>> gradients;  // of logical parameters, by name
};

// fn(logical index, local index) for every element of a portion of a tensor of two dims.
template <typename Fn>
void each_element(const Portion& p, const Fn& fn) {
  for (int64_t i = 0; i < p.extent[0] * p.extent[1]; ++i) {
    const int64_t row = p.offset[0] + i / p.extent[1], column = p.offset[1] + i % p.extent[1];
    fn(row * p.shape[1] + column, i);
  }
}

std::string logical_name(const std::string& local) { return local.substr(0, local.find('[')); }

void feed(Executor* e) {
  for (int64_t i = 0; i < kCutRows * kCutPositions; ++i) {
    e->input<int32_t>("ids")[i] = static_cast<int32_t>(i * 13 % kCutVocab);
    e->input<int32_t>("targets")[i] = static_cast<int32_t>(i % kCutVocab);
  }
  e->input<int32_t>("lengths")[0] = kCutPositions;
  e->input<int32_t>("lengths")[1] = 6;
  if (!e->find("rows")) return;
  for (int64_t i = 0; i < 2 * kCutRows; ++i) e->input<int64_t>("rows")[i] = 3 * i + 1;
}

// One pass of a rank; adds its parts of the gradients to the result.
void run_rank(Graph graph, const Kernels& kernels, int tp, Comm* tensor, Result* result) {
  const Plan plan = make_plan(std::move(graph), {&kernels, 1, 2, tp, 1});
  ArenaLayout layout;
  layout.add(plan);
  const Arena arena(layout.total_bytes());
  ThreadPool pool(1);
  Mesh mesh;
  mesh.tp = tp;
  mesh.tensor = tensor;
  Executor e(plan, layout, arena, &pool, mesh);
  for (const Ref r : plan.graph.of_kind(ValueKind::kParameter)) {
    const Value& v = plan.graph[r];
    const uint64_t stream = std::hash<std::string>{}(logical_name(v.name));
    each_element(portion_of(v), [&](int64_t logical, int64_t local) {
      e.at<float>(v.name)[local] =
          static_cast<float>(0.45 * normal_at(1, stream, static_cast<uint64_t>(logical)));
    });
  }
  feed(&e);
  e.run_pass({});
  result->loss = e.read<ExactSum>("loss_sum").value();
  for (const Update& u : plan.graph.updates) {
    const Value& v = plan.graph[u.gradient];
    const Portion p = portion_of(plan.graph[u.parameter]);
    std::vector<float>& all = result->gradients[logical_name(plan.graph[u.parameter].name)];
    all.resize(static_cast<size_t>(num_elements(p.shape)));
    each_element(p, [&](int64_t logical, int64_t local) {
      all[static_cast<size_t>(logical)] = e.at<float>(v.name)[local];
    });
  }
}

Result run(const Choice& c, const Kernels& kernels, int tp, int pieces, bool is_exact) {
  std::vector<Result> of_rank(static_cast<size_t>(tp));
  WorldOptions options;
  options.num_ranks = tp;
  const auto world = ShmWorld::create(options);
  std::vector<std::thread> threads;
  for (int r = 0; r < tp; ++r) {
    threads.emplace_back([&, r] {
      const auto comm = make_shm_comm(world, r);
      run_rank(cut_graph(c, {tp, r, pieces, is_exact}), kernels, tp, tp > 1 ? comm.get() : nullptr,
               &of_rank[static_cast<size_t>(r)]);
    });
  }
  for (std::thread& t : threads) t.join();
  Result all = of_rank[0];
  for (size_t r = 1; r < of_rank.size(); ++r) {
    EXPECT_EQ(of_rank[r].loss, all.loss);
    EXPECT_EQ(of_rank[r].gradients.size(), all.gradients.size());
    for (auto& [name, gradient] : of_rank[r].gradients) {
      // All are cut: a rank has zeros for the others' elements.
      std::vector<float>& sum = all.gradients[name];
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += gradient[i];
    }
  }
  return all;
}

double largest_difference(const Result& a, const Result& b) {
  double most = std::abs(a.loss - b.loss);
  EXPECT_EQ(a.gradients.size(), b.gradients.size());
  for (const auto& [name, gradient] : a.gradients) {
    for (size_t i = 0; i < gradient.size(); ++i) {
      most = std::max(most, std::abs(static_cast<double>(gradient[i]) -
                                     static_cast<double>(b.gradients.at(name)[i])));
    }
  }
  return most;
}

const Choice kChoices[] = {{ScoreBias::kAlibi},
                           {ScoreBias::kRelative},
                           {ScoreBias::kNone, true},
                           {ScoreBias::kRelative, true},
                           {ScoreBias::kAlibi, true}};

TEST(AttentionRanks, TwoComputeWhatOneDoes) {
  for (const Kernels* kernels : {&ref_kernels(), &cpu_kernels()}) {
    for (const Choice& c : kChoices) {
      const Result one = run(c, *kernels, 1, 1, false);
      EXPECT_LT(largest_difference(one, run(c, *kernels, 2, 2, false)), 2e-5)
          << kernels->name << " bias " << static_cast<int>(c.bias) << " dropout " << c.drops;
      Choice wrong = c;
      wrong.forgets_first_head = true;
      const bool has_no_number = c.bias == ScoreBias::kRelative && !c.drops;  // a table is cut
      EXPECT_EQ(largest_difference(one, run(wrong, *kernels, 2, 2, false)) < 1e-3, has_no_number);
    }
  }
}

TEST(AttentionRanks, ExactModeHasTheSameBits) {
  for (const Choice& c : kChoices) {
    const Result one = run(c, cpu_kernels(), 1, 4, true);
    EXPECT_EQ(largest_difference(one, run(c, cpu_kernels(), 2, 4, true)), 0.0)
        << " bias " << static_cast<int>(c.bias) << " dropout " << c.drops;
  }
}

}  // namespace
}  // namespace weft
