// train/plan_fit.cpp: every dp x tp x shard planned; where none fits, what would.
#include "train/plan_fit.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <tuple>

#include "base/error.h"
#include "io/hf_folder.h"
#include "model/model.h"
#include "track/progress.h"
#include "train/backend.h"
#include "train/engine.h"
#include "train/layout.h"
#include "train/plan_report.h"
#include "train/room.h"
#include "train/session.h"

namespace weft {
namespace {

constexpr int64_t kMostTp = 64;  // of the key parallel.tp

RunConfig with_layout(RunConfig c, const FitRow& row) {
  c.parallel.dp = row.dp;
  c.parallel.tp = row.tp;
  c.parallel.shard = row.shard;
  c.train.grad_accum = 0;  // follows from the layout
  c.launch.ranks_per_node = 0;
  return c;
}

constexpr double kAlike = 1.01;  // bytes on the wire within 1 % do not decide

void put_best_first(std::vector<FitRow>* rows) {
  std::stable_sort(rows->begin(), rows->end(), [](const FitRow& a, const FitRow& b) {
    const auto key = [](const FitRow& r) {
      return std::tuple(!r.fits, !r.is_admissible, r.fits ? r.received : 0, r.resident);
    };
    return key(a) < key(b);
  });
  const auto end =
      std::find_if(rows->begin(), rows->end(), [](const FitRow& r) { return !r.fits; });
  for (auto first = rows->begin(); first != end;) {
    const auto most = kAlike * static_cast<double>(first->received);
    const auto last = std::find_if(
        first, end, [&](const FitRow& r) { return static_cast<double>(r.received) > most; });
    std::stable_sort(first, last,
                     [](const FitRow& a, const FitRow& b) { return a.resident < b.resident; });
    first = last;
  }
}

// "arena 8.1 GiB + context 1.7 GiB"
std::string describe_need(const PlanReport& plan) {
  return fmt::format("arena {} + {} {}", format_bytes(plan.largest_arena()),
                     beside_arena_name(plan.is_on_gpu), format_bytes(beside_arena(plan.is_on_gpu)));
}

class Fitter {
 public:
  Fitter(const Model& model, const Kernels& kernels, int64_t memory)
      : model_(model), kernels_(kernels), memory_(memory), speeds_(load_speeds(kernels.name)) {}

  std::vector<FitRow> rows(const RunConfig& c, int64_t ranks) const {
    std::vector<FitRow> all;
    for (int64_t tp = 1; tp <= std::min(ranks, kMostTp); ++tp) {
      if (ranks % tp != 0) continue;
      for (const char* shard : {"none", "zero1", "zero2", "zero3"}) {
        FitRow row;
        row.dp = ranks / tp;
        row.tp = tp;
        row.shard = shard;
        fill(c, &row);
        all.push_back(row);
        // Nothing to cut over one rank; and what is refused is so for every shard.
        if (row.dp == 1 || !row.is_admissible) break;
      }
    }
    put_best_first(&all);
    return all;
  }

 private:
  void fill(const RunConfig& given, FitRow* row) const {
    const RunConfig c = with_layout(given, *row);
    std::vector<std::string> complaints;
    check_batch(c, &complaints);
    if (!complaints.empty()) {
      row->reason = complaints[0];
      return;
    }
    try {
      const PlanReport plan = plan_layout(c, model_, kernels_, speeds_);
      row->is_admissible = true;
      row->arena = plan.largest_arena();
      row->resident = plan.resident();
      row->fits = row->resident <= memory_;
      if (!row->fits) row->reason = describe_need(plan);
      row->received = plan.received();
      row->received_per_token =
          static_cast<double>(row->received) / static_cast<double>(plan.tokens);
      row->step_ms = plan.step_ms;
      row->is_step_of_fp32 = plan.is_step_of_fp32;
    } catch (const UserError& e) {
      row->reason = e.hint().empty() ? e.what() : fmt::format("{}; {}", e.what(), e.hint());
    }
  }

  const Model& model_;
  const Kernels& kernels_;
  int64_t memory_;
  std::optional<Speeds> speeds_;
};

bool is_admitted(const RunConfig& c, const Model& model, int64_t dp, int64_t tp) {
  FitRow row;
  row.dp = dp;
  row.tp = tp;
  const RunConfig changed = with_layout(c, row);
  std::vector<std::string> complaints;
  check_batch(changed, &complaints);
  if (!complaints.empty()) return false;
  try {
    resolve_layout(changed, model);
    return true;
  } catch (const UserError&) {
    return false;
  }
}

// The numbers of ranks next to `ranks` that have a layout: fewer, then more; not where there are
// none. What dp may be does not depend on tp, nor the reverse.
std::vector<int64_t> find_nearest_ranks(const RunConfig& c, const Model& model, int64_t ranks) {
  std::vector<int64_t> tensor;
  for (int64_t tp = 1; tp <= kMostTp; ++tp) {
    if (is_admitted(c, model, 1, tp)) tensor.push_back(tp);
  }
  if (tensor.empty()) return {};
  const auto has_layout = [&](int64_t n) {
    return std::any_of(tensor.begin(), tensor.end(), [&](int64_t tp) {
      const int64_t dp = n / tp;
      return n % tp == 0 && c.train.global_batch % dp == 0 && is_admitted(c, model, dp, 1);
    });
  };
  std::vector<int64_t> found;
  const int64_t most = c.train.global_batch * tensor.back();
  for (int64_t n = std::min(ranks - 1, most); n >= 1 && found.empty(); --n) {
    if (has_layout(n)) found.push_back(n);
  }
  for (int64_t n = ranks + 1; n <= most; ++n) {
    if (!has_layout(n)) continue;
    found.push_back(n);
    break;
  }
  return found;
}

// What one changes first: nothing of what is trained, then its precision, then its rows.
std::vector<std::string> find_advice(const Fitter& fitter, const RunConfig& c, int64_t ranks) {
  std::vector<std::string> advice;
  const auto try_change = [&](const std::string& what, const RunConfig& changed, int64_t count) {
    const std::vector<FitRow> rows = fitter.rows(changed, count);
    if (rows.empty() || !rows[0].fits) return false;
    advice.push_back(
        fmt::format("{}: {} takes {}", what, rows[0].layout(), format_bytes(rows[0].resident)));
    return true;
  };
  if (c.train.micro_batch > 1 && c.parallel.mode == "fast") {
    RunConfig one = c;
    one.train.micro_batch = 1;
    try_change("set train.micro_batch: 1", one, ranks);
  }
  for (int64_t more = 2; more <= 16; more *= 2) {
    if (try_change(fmt::format("take {} ranks", ranks * more), c, ranks * more)) break;
  }
  if (c.train.precision == "fp32") {
    RunConfig low = c;
    low.train.precision = "bf16";
    try_change("set train.precision: bf16", low, ranks);
  }
  for (int64_t length = c.data.seq_length / 2; length >= 64; length /= 2) {
    RunConfig cut = c;
    cut.data.seq_length = length;
    if (try_change(fmt::format("set data.seq_length: {}", length), cut, ranks)) break;
  }
  return advice;
}

}  // namespace

std::string FitRow::layout() const { return fmt::format("dp={},tp={},shard={}", dp, tp, shard); }

namespace {

// launch.device for so many ranks, however they are laid out.
const Kernels* kernels_for(RunConfig c, int64_t ranks) {
  c.parallel.dp = ranks;
  c.parallel.tp = 1;
  return &choose_kernels(c);
}

}  // namespace

FitReport fit_layouts(const RunConfig& c, int64_t memory, int64_t ranks, const Kernels* given) {
  const Kernels& kernels = given ? *given : *kernels_for(c, ranks);
  const HfFolder folder(resolve_model_path(c.model.path));
  const auto model = make_model(folder.config(), {c.model.num_layers.value_or(0), c.model.dropout});
  check_positions(c, *model);
  const Fitter fitter(*model, kernels, memory);
  FitReport report{memory, ranks, kernels.device != nullptr, fitter.rows(c, ranks), {}, {}};
  if (!report.has_admissible()) {
    report.nearest_ranks = find_nearest_ranks(c, *model, ranks);
  } else if (!report.has_fit()) {
    report.advice = find_advice(fitter, c, ranks);
  }
  return report;
}

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
                         {"received", row.received},
                         {"received_per_token", row.received_per_token},
                         {"step_ms", row.step_ms ? Json(*row.step_ms) : Json()}});
    }
    if (!row.reason.empty()) o.emplace_back("reason", row.reason);
    all.push_back(Json(std::move(o)));
  }
  for (const std::string& text : advice) changes.push_back(Json(text));
  return Json(Json::Object{
      {"memory", memory},
      {"ranks", ranks},
      {"beside_arena", beside_arena(is_on_gpu)},
      {"device", is_on_gpu ? "cuda" : "cpu"},
      {"recommended", has_fit() ? Json(rows[0].layout()) : Json()},
      {"layouts", Json(std::move(all))},
      {"advice", Json(std::move(changes))},
      {"nearest_ranks", Json(Json::Array(nearest_ranks.begin(), nearest_ranks.end()))}});
}

std::string FitReport::to_text() const {
  std::string text = fmt::format("{} a rank, {} ranks{}\n\n  {:<28} {:>5} {:>12} {:>16} {:>10}\n",
                                 format_bytes(memory), ranks, is_on_gpu ? " with a GPU each" : "",
                                 "layout", "fits", "memory a rank", "bytes / token", "step");
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
        "\nno layout has {} rank{}, whatever the memory: the model or the batch cannot be cut so, "
        "for the reasons above\n",
        ranks, ranks == 1 ? "" : "s");
    if (!nearest_ranks.empty())
      text += fmt::format("nearest numbers of ranks that have one: {}\n",
                          fmt::join(nearest_ranks, ", "));
    return text;
  }
  text += "\nnone fits";
  text += advice.empty() ? "; nor does any with smaller micro batches, 16 times the ranks, bf16 or "
                           "shorter rows alone\n"
                         : "; any one of these changes would do:\n";
  for (const std::string& change : advice) text += "  " + change + "\n";
  return text;
}

}  // namespace weft
