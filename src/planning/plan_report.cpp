// planning/plan_report.cpp: plans every kind of rank, without allocating weights and without data.
#include "planning/plan_report.h"

#include <algorithm>

#include "base/error.h"
#include "config/schedule_warnings.h"
#include "config/session.h"
#include "exec/dump.h"
#include "exec/loss_sums.h"
#include "exec/memory_picture.h"
#include "io/hf_folder.h"
#include "net/shm_world.h"
#include "planning/backend.h"
#include "planning/gpu_speeds.h"
#include "planning/idle_keys.h"
#include "planning/rank_overhead.h"
#include "planning/rank_plans.h"
#include "planning/snapshot_bytes.h"

namespace weft {
namespace {

// Fraction of a step's time in matrix products: 0.8 in a profile of model S in fp32; in bf16 nearer
// 0.65, so that the estimate is then too short.
constexpr double kProductShare = 0.8;

// Combined product speed of all ranks. All cores busy, but no more threads than there are.
double total_gflops(const RunConfig& c, const Speeds& s, int num_ranks, int threads) {
  const bool low = c.compute_dtype() != Dtype::kF32;
  const double all = low ? s.gflops_bf16 : s.gflops_fp32;
  const double one = low ? s.gflops_bf16_one : s.gflops_fp32_one;
  return std::min(all, one * num_ranks * threads);
}

// Work at the speed of the machine's cores, then the collectives at the speed of a copy (bytes read
// and written, by all ranks, through the same memory). More ranks than fit one machine use a
// network of unknown speed.
std::optional<double> estimate_ms(const RunConfig& c, const PlanReport& r,
                                  const std::optional<Speeds>& speeds) {
  const int num_ranks = r.layout.num_ranks();
  if (!speeds || num_ranks > kMaxLocalRanks) return std::nullopt;
  double flops = 0;
  for (int of : r.classes.of) flops += r.plans[static_cast<size_t>(of)].flops;
  const double gflops = total_gflops(c, *speeds, num_ranks, r.threads) * kProductShare;
  const double moved = 2.0 * static_cast<double>(r.received()) * num_ranks;
  return flops / gflops * 1e-6 + moved / speeds->copy_gb_per_s * 1e-6;
}

int64_t num_nodes(const EnginePlans& plans) {
  const auto count = [](const Plan& plan) {
    return plan.graph.pass.size() + plan.graph.finish.size();
  };
  return static_cast<int64_t>(count(plans.train) + (plans.eval ? count(*plans.eval) : 0));
}

void add_first_rank(const EnginePlans& plans, PlanReport* r) {
  r->wire = wire_of(plans.train);
  // The loss and the token counts, which Engine::start_passes sums.
  if (r->layout.dp > 1) {
    add_wire(&r->wire,
             {CommOp::kAllReduce, Axis::kData, r->layout.dp, 1, kLossNumbers * int64_t{8}});
  }
}

}  // namespace

const RankPlan& PlanReport::of_rank(int rank) const {
  return plans[static_cast<size_t>(classes.of[static_cast<size_t>(rank)])];
}

int64_t PlanReport::largest_arena() const {
  int64_t most = 0;
  for (const RankPlan& plan : plans) most = std::max(most, plan.memory.total());
  return most;
}

int64_t PlanReport::sum_of_arenas() const {
  int64_t sum = 0;
  for (int of : classes.of) sum += plans[static_cast<size_t>(of)].memory.total();
  return sum;
}

int64_t PlanReport::overhead(int rank) const {
  return (is_on_gpu ? kContextBytes : host.of_rank(rank)) + staging;
}

int64_t PlanReport::resident_total() const {
  return sum_of_arenas() + host.of_all(layout.num_ranks());
}

int64_t PlanReport::resident_of_node() const {
  int64_t sum = host.of_all(num_ranks_here());
  for (size_t r = 0; r < static_cast<size_t>(num_ranks_here()); ++r)
    sum += plans[static_cast<size_t>(classes.of[r])].memory.total();
  return sum;
}

int64_t PlanReport::received() const {
  int64_t bytes = 0;
  for (const WireItem& item : wire) bytes += received_bytes(item);
  return bytes;
}

PlanReport plan_layout(const RunConfig& c, const Model& model, const Kernels& kernels,
                       const std::optional<Speeds>& speeds, bool with_dump, const CutGraphs* cut) {
  PlanReport r;
  r.layout = resolve_layout(c, model);
  r.num_parameters = count_parameters(model);
  r.num_passes = c.num_passes();
  r.tokens = c.train.global_batch * c.data.seq_length;
  r.ranks_of_node = static_cast<int>(c.ranks_per_node());
  r.threads = choose_threads(c.launch, r.ranks_of_node);
  r.idle = idle_keys(c, model);
  const std::string warmup = long_warmup(c.train.schedule, {c.train.steps.value_or(0)});
  if (!warmup.empty()) r.idle.push_back(warmup);
  r.is_longest = c.data.layout == "dynamic";
  r.is_packed = c.data.layout == "pack";
  std::optional<CutGraphs> own;
  if (!cut) cut = &own.emplace(make_cut_graphs(c, model, r.layout));
  r.classes = find_rank_classes(*cut, r.layout);
  r.is_on_gpu = kernels.device != nullptr;
  if (!r.is_on_gpu) r.host = expected_host_memory(c);
  r.ranks_on_a_gpu = ranks_on_a_gpu(r.ranks_of_node, r.is_on_gpu);
  r.staging = staging_bytes(r.layout, r.is_on_gpu);
  r.has_slots = has_snapshot_slots(c);
  const int64_t copies = num_state_copies(c);
  if (copies > 0) r.snapshots = copies * snapshot_bytes(c, model);
  const std::string why_no_tf32 = why_no_tf32_here(c, r.is_on_gpu);
  if (!why_no_tf32.empty()) r.idle.push_back(why_no_tf32);
  const bool uses_tf32 = c.train.tf32 && why_no_tf32.empty();
  for (int rank : r.classes.first) {
    const Graph& graph = cut->graphs[static_cast<size_t>(r.layout.tp_rank(rank))];
    const auto plans = make_engine_plans(c, model, r.layout, rank, kernels, r.threads, &graph);
    r.plans.push_back({memory_parts(plans->train, plans->layout),
                       plans->train.pass_flops * static_cast<double>(c.num_passes()),
                       copies * snapshot_bytes(plans->train.graph, c.has_masters())});
    if (rank == 0) {
      add_first_rank(*plans, &r);
      if (!r.is_on_gpu) r.host.tables = expected_table_bytes(num_nodes(*plans));
    }
    if (rank == 0 && with_dump) {
      r.dump = dump_plan(plans->train);
      r.picture = draw_memory(plans->train, describe(r.layout));
    }
    // The speed between GPUs is unknown.
    const bool is_alone = r.is_on_gpu && r.layout.num_ranks() == 1;
    if (const auto gpu = is_alone ? load_gpu_speeds(first_gpu()) : std::nullopt) {
      r.step_ms = estimate_gpu_ms(plans->train, *gpu, uses_tf32);
      r.is_step_of_fp32 = uses_tf32 && gpu->tflops_tf32 == 0;
    }
  }
  if (!r.is_on_gpu) r.step_ms = estimate_ms(c, r, speeds);
  return r;
}

PlanReport plan_run(const RunConfig& c, bool with_dump) {
  const HfFolder folder(resolve_model_path(c.model.path));
  const auto model = open_model(c, folder);
  check_positions(c, *model);
  const Kernels& kernels = choose_kernels(c);
  return plan_layout(c, *model, kernels, load_speeds(kernels.name), with_dump);
}

}  // namespace weft
