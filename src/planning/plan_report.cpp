// planning/plan_report.cpp: plans every kind of rank, without allocating weights and without data.
#include "planning/plan_report.h"

#include <algorithm>
#include <map>

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
#include "track/progress.h"

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

void add_first_rank(const EnginePlans& plans, PlanReport* r) {
  r->wire = wire_of(plans.train);
  // The loss and the token counts, which Engine::start_passes sums.
  if (r->layout.dp > 1) {
    add_wire(&r->wire,
             {CommOp::kAllReduce, Axis::kData, r->layout.dp, 1, kLossNumbers * int64_t{8}});
  }
}

Json rank_json(int rank, const RankPlan& plan, int64_t overhead) {
  const MemoryParts& m = plan.memory;
  return Json(Json::Object{{"rank", rank},
                           {"parameters", m.parameters},
                           {"gradients", m.gradients},
                           {"states", m.states},
                           {"activations", m.activations},
                           {"communication", m.communication},
                           {"other", m.other},
                           {"total", m.total()},
                           {"resident", m.total() + overhead},
                           {"flops", plan.flops}});
}

}  // namespace

const char* axis_name(Axis axis) { return axis == Axis::kTensor ? "tp" : "dp"; }

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
                       const std::optional<Speeds>& speeds, bool with_dump) {
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
  r.classes = find_rank_classes(c, model, r.layout);
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
    const auto plans = make_engine_plans(c, model, r.layout, rank, kernels, r.threads);
    r.plans.push_back({memory_parts(plans->train, plans->layout),
                       plans->train.pass_flops * static_cast<double>(c.num_passes()),
                       copies * snapshot_bytes(plans->train.graph, c.has_masters())});
    if (rank == 0) add_first_rank(*plans, &r);
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

std::vector<std::string> PlanReport::notes() const {
  std::vector<std::string> all;
  if (is_longest)
    all.emplace_back(
        "data.layout dynamic: work is for a batch of the longest rows; memory is for all lengths");
  if (is_packed)
    all.emplace_back(
        "data.layout pack: work is for rows of one segment; shorter segments attend to less");
  all.insert(all.end(), idle.begin(), idle.end());
  if (ranks_on_a_gpu > 1) {
    all.push_back(fmt::format("WEFT_COMM=cuda_ipc: {} ranks share a GPU, and need {} x {} = {}",
                              ranks_on_a_gpu, ranks_on_a_gpu, format_bytes(resident()),
                              format_bytes(ranks_on_a_gpu * resident())));
  }
  return all;
}

Json PlanReport::to_json() const {
  Json::Array ranks, moved, lines;
  for (const std::string& note : notes()) lines.emplace_back(note);
  if (!step_ms)
    lines.emplace_back("step_ms: " + describe_step_time(step_ms, layout.num_ranks(), is_on_gpu));
  for (int rank = 0; rank < layout.num_ranks(); ++rank) {
    ranks.push_back(rank_json(rank, of_rank(rank), overhead(rank)));
  }
  for (const WireItem& item : wire) {
    moved.push_back(Json(Json::Object{{"op", comm_op_name(item.op)},
                                      {"axis", axis_name(item.axis)},
                                      {"ranks", item.ranks},
                                      {"calls", item.calls},
                                      {"bytes", item.bytes},
                                      {"received", received_bytes(item)}}));
  }
  Json out;
  out.set("layout", describe(layout));
  out.set("device", is_on_gpu ? "cuda" : "cpu");
  out.set("per_rank", Json(std::move(ranks)));
  out.set("wire", Json(std::move(moved)));
  out.set("arena", arena());
  out.set("beside_arena", overhead());
  out.set("resident", resident());
  out.set("snapshot", plans[0].snapshot);
  if (!is_on_gpu) {
    out.set("resident_total", resident_total());
    out.set("host", Json(Json::Object{{"program", host.program},
                                      {"writer", host.writer},
                                      {"tokenizer", host.tokenizer},
                                      {"batches", host.batches},
                                      {"code", host.code},
                                      {"supervisor", host.supervisor}}));
  }
  out.set("flops", plans[0].flops);
  out.set("step_ms", step_ms ? Json(*step_ms) : Json());
  if (is_step_of_fp32) out.set("step_ms_note", kStepOfFp32);
  out.set("notes", Json(std::move(lines)));
  return out;
}

std::string describe_step_time(const std::optional<double>& step_ms, int num_ranks,
                               bool is_on_gpu) {
  if (step_ms) return fmt::format("{:.0f} ms", *step_ms);
  if (is_on_gpu && num_ranks > 1)
    return "unknown for several GPUs, whose interconnect was not measured";
  if (num_ranks > kMaxLocalRanks) return "unknown for more ranks than one machine can run";
  if (is_on_gpu && first_gpu().empty())
    return "unknown until `weft doctor --measure` is run on a machine with the GPU, and its speeds "
           "are copied here (docs/plan.md)";
  return "unknown until `weft doctor --measure` is run once";
}

std::string describe_ranks(int64_t ranks, bool is_on_gpu, int64_t ranks_on_a_gpu) {
  const std::string all = fmt::format("{} rank{}", ranks, ranks == 1 ? "" : "s");
  if (!is_on_gpu) return all;
  if (ranks == 1) return all + " with a GPU";
  if (ranks_on_a_gpu == 1) return all + " with a GPU each";
  return ranks_on_a_gpu == ranks ? all + " that share a GPU"
                                 : fmt::format("{}, {} of them on a GPU", all, ranks_on_a_gpu);
}

namespace {

constexpr size_t kMostShown = 5;

// "rank 3", "ranks 1, 3, 5 and 9 more"
std::string list_ranks(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < std::min(ranks.size(), kMostShown); ++i) {
    text += fmt::format("{}{}", i > 0 ? ", " : "", ranks[i]);
  }
  return ranks.size() <= kMostShown
             ? text
             : fmt::format("{} and {} more", text, ranks.size() - kMostShown);
}

std::string memory_text(const PlanReport& r) {
  const MemoryParts& m = r.plans[0].memory;
  std::string text;
  const auto line = [&](const char* what, int64_t bytes) {
    text += fmt::format("  {:<14} {:>18} bytes  {:>10}\n", what,
                        format_count(static_cast<double>(bytes)), format_bytes(bytes));
  };
  line("parameters", m.parameters);
  line("gradients", m.gradients);
  line("states", m.states);
  line("activations", m.activations);
  line("communication", m.communication);
  line("other", m.other);
  line("arena", m.total());
  if (r.is_on_gpu) {
    line("context", kContextBytes);
  } else {
    line("program", r.host.program);
    line("writer", r.host.writer);
    if (r.host.tokenizer > 0) line("tokenizer", r.host.tokenizer);
    line("batches", r.host.batches);
    line("code", r.host.code);
  }
  if (r.staging > 0) line("staging", r.staging);
  return text;
}

// Ranks with other memory needs than rank 0.
std::string classes_text(const PlanReport& r) {
  std::map<int64_t, std::vector<int>> others;  // by arena
  for (int rank = 0; rank < r.layout.num_ranks(); ++rank) {
    const int64_t arena = r.of_rank(rank).memory.total();
    if (arena != r.arena()) others[arena].push_back(rank);
  }
  std::string text;
  size_t shown = 0;
  for (auto other = others.rbegin(); other != others.rend() && shown < kMostShown; ++other) {
    ++shown;
    text += fmt::format("  {:>14} {:>18} bytes  on {}\n", "arena",
                        format_count(static_cast<double>(other->first)), list_ranks(other->second));
  }
  if (others.size() > shown) text += fmt::format("  and {} smaller ones\n", others.size() - shown);
  return text;
}

std::string wire_text(const PlanReport& r) {
  if (r.wire.empty()) return "nothing goes over the wire\n";
  std::string text = fmt::format("  {:<15} {:<5} {:>6} {:>8} {:>18} {:>18}\n", "collective", "axis",
                                 "ranks", "calls", "bytes given", "bytes received");
  for (const WireItem& item : r.wire) {
    const int64_t received = received_bytes(item);
    text += fmt::format("  {:<15} {:<5} {:>6} {:>8} {:>18} {:>18}\n", comm_op_name(item.op),
                        axis_name(item.axis), item.ranks, item.calls,
                        format_count(static_cast<double>(item.bytes)),
                        format_count(static_cast<double>(received)));
  }
  return text;
}

}  // namespace

std::string PlanReport::to_text() const {
  std::string text = fmt::format(
      "{} parameters; {} on {}{} {} thread{}\n"
      "one step feeds {} positions in {} pass{} per rank; rank 0 computes {:.2f} GFLOP\n\n",
      format_count(static_cast<double>(num_parameters)), describe(layout),
      describe_ranks(layout.num_ranks(), is_on_gpu, ranks_on_a_gpu), is_on_gpu ? " and" : " of",
      threads, threads == 1 ? "" : "s", tokens, num_passes, num_passes == 1 ? "" : "es",
      plans[0].flops * 1e-9);
  for (const std::string& note : notes()) text += note + "\n\n";
  text += fmt::format("memory of rank 0:\n{}{}\n", memory_text(*this), classes_text(*this));
  text += fmt::format("on the wire in one step, by rank 0:\n{}", wire_text(*this));
  text += fmt::format("\nexpected peak of {} memory{}: {}\n", is_on_gpu ? "GPU" : "resident",
                      layout.num_ranks() > 1 ? " of a rank" : "", format_bytes(resident()));
  if (!is_on_gpu && layout.num_ranks() > 1) {
    text += fmt::format(
        "expected peak of all ranks and their supervisor ({}), pages that they share counted once: "
        "{}\n",
        format_bytes(host.supervisor), format_bytes(resident_total()));
  }
  if (snapshots > 0) {
    text += fmt::format("{}: {} more{}\n",
                        has_slots ? "copies of its state in memory (launch.snapshot_every)"
                                  : "once a checkpoint is written beside training "
                                    "(checkpoint.async)",
                        format_bytes(plans[0].snapshot), is_on_gpu ? " of host memory" : "");
  }
  text += fmt::format("expected step: {}{}\n",
                      describe_step_time(step_ms, layout.num_ranks(), is_on_gpu),
                      is_step_of_fp32 ? fmt::format(" ({})", kStepOfFp32) : "");
  return text;
}

}  // namespace weft
