// planning/plan_report_text.cpp: the report as text and as JSON.
#include <fmt/core.h>

#include <algorithm>
#include <map>

#include "net/shm_world.h"
#include "planning/backend.h"
#include "planning/plan_report.h"
#include "planning/rank_overhead.h"
#include "planning/text_table.h"
#include "track/progress.h"

namespace weft {
namespace {

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
    if (r.host.tables > 0) line("tables", r.host.tables);
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
  TextTable table({{"collective", 15, TextTable::Align::kLeft},
                   {"axis", 5, TextTable::Align::kLeft},
                   {"ranks", 6},
                   {"calls", 8},
                   {"bytes given", 18},
                   {"bytes received", 18}});
  for (const WireItem& item : r.wire) {
    table.add({comm_op_name(item.op), axis_name(item.axis), std::to_string(item.ranks),
               std::to_string(item.calls), format_count(static_cast<double>(item.bytes)),
               format_count(static_cast<double>(received_bytes(item)))});
  }
  return table.text();
}

}  // namespace

const char* axis_name(Axis axis) { return axis == Axis::kTensor ? "tp" : "dp"; }

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
                                      {"tables", host.tables},
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
