// planning/plan_fit.cpp: plans every dp x tp x shard; where none fits, finds what would.
#include "planning/plan_fit.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

#include "base/error.h"
#include "config/session.h"
#include "io/hf_folder.h"
#include "model/model.h"
#include "planning/backend.h"
#include "planning/gpu_memory_check.h"
#include "planning/layout.h"
#include "planning/plan_report.h"
#include "planning/rank_overhead.h"
#include "planning/rank_plans.h"
#include "planning/snapshot_bytes.h"
#include "track/progress.h"

namespace weft {
namespace {

constexpr int64_t kMostTp = 64;  // the limit of parallel.tp

RunConfig with_layout(RunConfig c, const FitRow& row) {
  c.parallel.dp = row.dp;
  c.parallel.tp = row.tp;
  c.parallel.shard = row.shard;
  c.train.grad_accum = 0;  // follows from the layout
  c.launch.ranks_per_node = 0;
  c.launch.nodes = std::gcd(c.launch.nodes, row.dp * row.tp);  // fewer ranks than nodes, say
  return c;
}

constexpr double kAlike = 1.01;  // differences within 1 % of the bytes on the wire do not decide

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
  std::string text = fmt::format("arena {} + {} {}", format_bytes(plan.largest_arena()),
                                 arena_overhead_name(plan.is_on_gpu),
                                 format_bytes(plan.overhead() - plan.staging));
  if (plan.staging > 0) text += " + staging " + format_bytes(plan.staging);
  return text;
}

class Fitter {
 public:
  // memory: of a rank.
  Fitter(const Model& model, const Kernels& kernels, int64_t memory)
      : model_(model), kernels_(kernels), memory_(memory), speeds_(load_speeds(kernels.name)) {}

  std::vector<FitRow> rows(const RunConfig& c, int64_t ranks) const {
    return plan_all(c, ranks, false);
  }

  // The best layout that fits. Those whose weights and states alone do not are not planned.
  std::optional<FitRow> find_fitting(const RunConfig& c, int64_t ranks) const {
    const std::vector<FitRow> all = plan_all(c, ranks, true);
    if (all.empty() || !all[0].fits) return std::nullopt;
    return all[0];
  }

  int64_t num_plans() const { return num_plans_; }

 private:
  // An upper bound: on the CPU the memory outside of the arena depends on the layout.
  int64_t memory_for_arena() const { return memory_ - (kernels_.device ? kContextBytes : 0); }

  std::vector<FitRow> plan_all(const RunConfig& c, int64_t ranks, bool skips_hopeless) const {
    std::vector<FitRow> all;
    for (int64_t tp = 1; tp <= std::min(ranks, kMostTp); ++tp) {
      if (ranks % tp != 0) continue;
      std::optional<CutGraphs> cut;
      for (const char* shard : {"none", "zero1", "zero2", "zero3"}) {
        FitRow row;
        row.dp = ranks / tp;
        row.tp = tp;
        row.shard = shard;
        if (skips_hopeless && least_arena(with_layout(c, row), model_) > memory_for_arena())
          continue;
        fill(c, &row, &cut);
        all.push_back(row);
        // Nothing to shard over one rank; and a rejection holds for every shard.
        if (row.dp == 1 || !row.is_admissible) break;
      }
    }
    put_best_first(&all);
    return all;
  }

  void fill(const RunConfig& given, FitRow* row, std::optional<CutGraphs>* cut) const {
    const RunConfig c = with_layout(given, *row);
    std::vector<std::string> complaints;
    check_batch(c, &complaints);
    if (!complaints.empty()) {
      row->reason = complaints[0];
      return;
    }
    try {
      if (!*cut) *cut = make_cut_graphs(c, model_, resolve_layout(c, model_));
      ++num_plans_;
      const PlanReport plan = plan_layout(c, model_, kernels_, speeds_, false, &**cut);
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
  mutable int64_t num_plans_ = 0;
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

// The numbers of ranks nearest to `ranks` that have a layout: fewer, then more; omitted where there
// are none. The admissible dp and tp are independent.
std::vector<int64_t> find_nearest_ranks(const RunConfig& c, const Model& model, int64_t ranks) {
  std::vector<int64_t> tensor;
  for (int64_t tp = 1; tp <= kMostTp; ++tp) {
    if (is_admitted(c, model, 1, tp)) tensor.push_back(tp);
  }
  if (tensor.empty()) return {};
  std::map<int64_t, bool> is_data;
  const auto is_data_admitted = [&](int64_t dp) {
    const auto [found, is_new] = is_data.try_emplace(dp, false);
    if (is_new) found->second = is_admitted(c, model, dp, 1);
    return found->second;
  };
  const auto has_layout = [&](int64_t n) {
    return std::any_of(tensor.begin(), tensor.end(), [&](int64_t tp) {
      return n % tp == 0 && c.train.global_batch % (n / tp) == 0 && is_data_admitted(n / tp);
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

// What would make it fit: first without changing the training, then its precision, then its rows.
// Where several values of a key would do, the nearest.
class Advice {
 public:
  Advice(const Fitter& fitter, const RunConfig& c, FitReport* report)
      : fitter_(fitter), c_(c), report_(report) {}

  void find() {
    try_rows_at_once();
    if (report_->ranks_on_a_gpu == 1) try_more_ranks();
    try_precision();
    try_shorter_rows();
  }

 private:
  bool try_change(const std::string& what, const RunConfig& changed, int64_t ranks) {
    const std::optional<FitRow> row = fitter_.find_fitting(changed, ranks);
    if (!row) return false;
    report_->advice.push_back({what, ranks, *row});
    return true;
  }

  // what: the changes made to `c` so far, or empty.
  bool try_micro_batch(RunConfig c, int64_t rows, const std::string& what) {
    c.train.micro_batch = rows;
    const char* begin = what.empty() ? "set" : " and";
    return try_change(fmt::format("{}{} train.micro_batch: {}", what, begin, rows), c,
                      report_->ranks);
  }

  // All rows of a rank at once, where that is more than it is now.
  void try_one_pass(const RunConfig& c, const std::string& what = "") {
    const int64_t batch = c.train.global_batch;
    for (int64_t dp = std::min(report_->ranks, batch); dp >= 1; --dp) {
      const bool is_layout = report_->ranks % dp == 0 && batch % dp == 0;
      if (is_layout && batch / dp > c.train.micro_batch && try_micro_batch(c, batch / dp, what))
        break;
    }
  }

  // As long as a step has several passes, fewer rows at once need less memory. A single pass keeps
  // no gradients between passes, so that all rows of a rank at once can need less than some of
  // them. (In exact mode a pass is a leaf, whatever micro_batch is.)
  bool can_change_rows_at_once() const {
    return c_.parallel.mode == "fast" && c_.train.global_batch > 1;
  }

  void try_rows_at_once() {
    if (!can_change_rows_at_once()) return;
    report_->tried.emplace_back("another train.micro_batch");
    RunConfig one = c_;
    one.train.micro_batch = 1;
    const int64_t batch = c_.train.global_batch, now = std::min(c_.train.micro_batch, batch);
    if (now > 1 && fitter_.find_fitting(one, report_->ranks)) {
      for (int64_t rows = now - 1; rows >= 1; --rows) {
        if (batch % rows == 0 && try_micro_batch(c_, rows, "")) break;
      }
    }
    try_one_pass(c_);
  }

  void try_more_ranks() {
    report_->tried.emplace_back("up to 16 times the ranks");
    for (int64_t more = 2; more <= 16; more *= 2) {
      const int64_t ranks = report_->ranks * more;
      if (try_change(fmt::format("use {} ranks", ranks), c_, ranks)) break;
    }
  }

  // bf16 with fp32 masters saves activations, but adds parameters; without masters it saves both.
  void try_precision() {
    RunConfig low = c_;
    low.train.precision = "bf16";
    if (c_.train.precision == "fp32") {
      report_->tried.emplace_back("bf16");
      if (try_change("set train.precision: bf16", low, report_->ranks)) return;
    }
    if (c_.train.precision == "fp16" || !c_.train.master_weights) return;
    low.train.master_weights = false;
    const bool is_low = c_.train.precision == "bf16";
    report_->tried.emplace_back("bf16 without fp32 masters");
    const std::string what = is_low ? "set train.master_weights: false"
                                    : "set train.precision: bf16 and train.master_weights: false";
    if (!try_change(what, low, report_->ranks) && can_change_rows_at_once())
      try_one_pass(low, what);
  }

  void try_shorter_rows() {
    report_->tried.emplace_back("shorter rows");
    for (int64_t length = c_.data.seq_length / 2; length >= 64; length /= 2) {
      RunConfig cut = c_;
      cut.data.seq_length = length;
      if (try_change(fmt::format("set data.seq_length: {}", length), cut, report_->ranks)) break;
    }
  }

  const Fitter& fitter_;
  const RunConfig& c_;
  FitReport* report_;
};

// launch.device for this many ranks, in any layout.
const Kernels* kernels_for(RunConfig c, int64_t ranks) {
  c.parallel.dp = ranks;
  c.parallel.tp = 1;
  return &choose_kernels(c);
}

}  // namespace

FitReport fit_layouts(const RunConfig& c, int64_t memory, int64_t ranks,
                      const FitOptions& options) {
  const Kernels& kernels = options.kernels ? *options.kernels : *kernels_for(c, ranks);
  const HfFolder folder(resolve_model_path(c.model.path));
  const auto model = open_model(c, folder);
  check_positions(c, *model);
  FitReport report;
  report.memory = memory;
  report.ranks = ranks;
  report.is_on_gpu = kernels.device != nullptr;
  RunConfig spread = c;  // rows over all ranks: the smallest batches
  spread.parallel.dp = ranks;
  report.overhead = arena_overhead(spread, report.is_on_gpu);
  if (options.may_share) report.ranks_on_a_gpu = ranks_on_a_gpu(ranks, report.is_on_gpu);
  const Fitter fitter(*model, kernels, report.memory_of_a_rank());
  report.rows = fitter.rows(c, ranks);
  if (!report.has_admissible()) {
    report.nearest_ranks = find_nearest_ranks(c, *model, ranks);
  } else if (!report.has_fit() && !report.is_below_overhead() && options.with_advice) {
    Advice(fitter, c, &report).find();
  }
  report.num_plans = fitter.num_plans();
  return report;
}

}  // namespace weft
