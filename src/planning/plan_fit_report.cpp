// planning/plan_fit_report.cpp: the table of layouts as text and as JSON.
#include <fmt/ranges.h>

#include <algorithm>

#include "planning/plan_fit.h"
#include "planning/plan_report.h"
#include "planning/rank_overhead.h"
#include "track/progress.h"

namespace weft {
namespace {

// "a, b or c"
std::string join_with_or(const std::vector<std::string>& words) {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i) {
    const char* before = i == 0 ? "" : i + 1 == words.size() ? " or " : ", ";
    text += before + words[i];
  }
  return text;
}

std::string why_below_overhead(const FitReport& r) {
  return fmt::format(
      "{} need{} {} per rank outside the arena, but only {} is given: nothing is left for any "
      "layout",
      r.is_on_gpu ? "CUDA's context and libraries alone" : "the program alone",
      r.is_on_gpu ? "" : "s", format_bytes(r.overhead), format_bytes(r.memory_of_a_rank()));
}

std::string head_line(const FitReport& r) {
  const std::string ranks = describe_ranks(r.ranks, r.is_on_gpu, r.ranks_on_a_gpu);
  if (r.ranks_on_a_gpu == 1) return fmt::format("{} per rank, {}", format_bytes(r.memory), ranks);
  return fmt::format("{} per GPU, {} (WEFT_COMM=cuda_ipc): {} per rank", format_bytes(r.memory),
                     ranks, format_bytes(r.memory_of_a_rank()));
}

}  // namespace

std::string FitRow::layout() const { return fmt::format("dp={},tp={},shard={}", dp, tp, shard); }

std::string FitChange::text() const {
  return fmt::format("{}: {} needs {}", what, row.layout(), format_bytes(row.resident));
}

bool FitReport::is_below_overhead() const { return memory_of_a_rank() <= overhead; }

bool FitReport::has_admissible() const {
  return std::any_of(rows.begin(), rows.end(), [](const FitRow& r) { return r.is_admissible; });
}

Json FitReport::to_json() const {
  Json::Array all, changes;
  for (const FitRow& row : rows) {
    Json::Object o{{"layout", row.layout()}, {"fits", row.fits}};
    if (row.is_admissible) {
      o.insert(o.end(), {{"resident", row.resident},
                         {"arena", row.arena},
                         {"beside_arena", row.resident - row.arena},
                         {"received", row.received},
                         {"received_per_token", row.received_per_token},
                         {"step_ms", row.step_ms ? Json(*row.step_ms) : Json()}});
    }
    if (!row.reason.empty()) o.emplace_back("reason", row.reason);
    all.push_back(Json(std::move(o)));
  }
  for (const FitChange& change : advice) changes.emplace_back(change.text());
  return Json(Json::Object{
      {"memory", memory},
      {"ranks", ranks},
      {"ranks_on_a_gpu", ranks_on_a_gpu},
      {"beside_arena", overhead},
      {"device", is_on_gpu ? "cuda" : "cpu"},
      {"recommended", has_fit() ? Json(rows[0].layout()) : Json()},
      {"layouts", Json(std::move(all))},
      {"advice", Json(std::move(changes))},
      {"reason",
       has_admissible() && is_below_overhead() ? Json(why_below_overhead(*this)) : Json()},
      {"nearest_ranks", Json(Json::Array(nearest_ranks.begin(), nearest_ranks.end()))}});
}

std::string FitReport::to_text() const {
  std::string text = fmt::format("{}\n\n  {:<28} {:>5} {:>12} {:>16} {:>10}\n", head_line(*this),
                                 "layout", "fits", "memory / rank", "bytes / token", "step");
  for (const FitRow& row : rows) {
    if (!row.is_admissible) {
      text += fmt::format("  {:<28} {:>5} {}\n", fmt::format("dp={},tp={}", row.dp, row.tp), "-",
                          row.reason);
      continue;
    }
    text += fmt::format("  {:<28} {:>5} {:>13} {:>16.1f} {:>10}{}\n", row.layout(),
                        row.fits ? "yes" : "no", format_bytes(row.resident), row.received_per_token,
                        row.step_ms ? fmt::format("{:.0f} ms", *row.step_ms) : "?",
                        row.fits ? "" : "  " + row.reason);
  }
  const bool is_timed =
      std::any_of(rows.begin(), rows.end(), [](const FitRow& r) { return r.step_ms.has_value(); });
  if (has_admissible() && !is_timed)
    text += fmt::format("\nstep: {}\n", describe_step_time({}, static_cast<int>(ranks), is_on_gpu));
  if (std::any_of(rows.begin(), rows.end(), [](const FitRow& r) { return r.is_step_of_fp32; }))
    text += fmt::format("\nstep: {}\n", kStepOfFp32);
  if (has_fit()) {
    return text + fmt::format(
                      "\nrecommended: --set parallel.dp={} --set parallel.tp={} --set "
                      "parallel.shard={}\n",
                      rows[0].dp, rows[0].tp, rows[0].shard);
  }
  if (!has_admissible()) {
    text += fmt::format(
        "\nno layout has {} rank{}, whatever the memory: the model or the batch cannot be cut "
        "this way, for the reasons above\n",
        ranks, ranks == 1 ? "" : "s");
    if (!nearest_ranks.empty())
      text += fmt::format("nearest numbers of ranks that have one: {}\n",
                          fmt::join(nearest_ranks, ", "));
    return text;
  }
  text += "\nnone fits";
  if (is_below_overhead()) return text + ": " + why_below_overhead(*this) + "\n";
  if (!tried.empty())
    text += advice.empty() ? fmt::format("; nor does any with only {}\n", join_with_or(tried))
                           : "; any one of these changes would do:\n";
  for (const FitChange& change : advice) text += "  " + change.text() + "\n";
  return text;
}

}  // namespace weft
