// verify/verify.cpp: starts children, reads their files, writes results.
#include "verify/verify.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/stop.h"
#include "checkpoint/compare.h"
#include "config/session.h"
#include "launch/child.h"
#include "planning/backend.h"
#include "planning/fault.h"
#include "planning/layout.h"
#include "planning/precision.h"
#include "track/plot.h"
#include "train/mirror.h"
#include "train/signals.h"
#include "train/tensor_hashes.h"
#include "verify/verify_layouts.h"

namespace weft {
namespace fs = std::filesystem;
namespace {

constexpr const char* kResultFile = "verify.json";
constexpr const char* kMark = "weft verify";  // our verify.json has it as "made_by"
constexpr int64_t kNever = 1'000'000'000;     // steps between checkpoints: the final one is enough

struct PlannedRun {
  VerifyLayout layout;
  std::vector<std::string> sets;  // all of them, in order
  RunConfig config;
  Layout mesh;
};

std::vector<std::string> sets_of(const VerifyOptions& o, const VerifyLayout& layout) {
  std::vector<std::string> sets = o.sets;
  sets.insert(sets.end(), {"launch.nodes=1", "launch.elastic=false"});  // they are compared here
  if (o.steps) {
    sets.push_back(fmt::format("train.steps={}", *o.steps));
    sets.emplace_back("train.epochs=1");  // steps or epochs, not both
  }
  sets.insert(sets.end(), layout.sets.begin(), layout.sets.end());
  sets.push_back(fmt::format("checkpoint.every={}", kNever));
  sets.emplace_back("checkpoint.keep=1");
  return sets;
}

PlannedRun plan_one(const VerifyOptions& o, const VerifyLayout& layout) {
  std::vector<std::string> sets = sets_of(o, layout);
  RunFile file(o.run, sets);
  choose_precision(&file);
  const Layout mesh = check_layout(file.config());
  check_backend(file.config());  // a later layout may need more GPUs than the first
  return {layout, std::move(sets), file.config(), mesh};
}

Json number_or_null(const std::optional<double>& v) {
  if (!v) return {};
  return {*v};
}

// Every layout is resolved before anything is written; all complaints are collected.
std::vector<PlannedRun> plan_runs(const VerifyOptions& o) {
  const std::vector<VerifyLayout> layouts = parse_layouts(o.layouts);
  const RunFile plain(o.run, o.sets);  // errors in the run file itself are reported once
  plain.log_replaced();
  VerifyOptions same = o;
  std::vector<PlannedRun> runs;
  std::vector<std::string> complaints;
  for (const VerifyLayout& layout : layouts) {
    try {
      runs.push_back(plan_one(same, layout));
      // Layouts of more ranks may find fewer GPUs: what auto is for the base holds for all.
      if (plain.config().train.precision == "auto" && runs.size() == 1)
        same.sets.push_back("train.precision=" + runs[0].config.train.precision);
    } catch (const UserError& e) {
      const std::string hint = e.hint().empty() ? "" : "; " + e.hint();
      complaints.push_back(fmt::format("layout \"{}\": {}{}", layout.name, e.what(), hint));
    }
  }
  refuse(complaints);
  return runs;
}

bool is_ours(const fs::path& out) {
  if (!fs::exists(out / kResultFile)) return false;
  const Json made = parse_json(read_file(out / kResultFile), (out / kResultFile).string());
  const Json* mark = made.find("made_by");
  return mark && mark->is_string() && mark->as_string() == kMark;
}

// A folder of an earlier verification is reused; its results are deleted.
void prepare_out(const fs::path& out) {
  require(!fs::exists(out) || fs::is_directory(out), "--out {} is not a folder", out.string());
  if (fs::exists(out) && !fs::is_empty(out) && !is_ours(out)) {
    throw UserError(fmt::format("--out {} is not empty and not from weft verify", out.string()),
                    "give a new or empty folder, or one from an earlier weft verify");
  }
  std::error_code bad;
  fs::create_directories(out, bad);
  if (bad) throw RunError(fmt::format("cannot create {}: {}", out.string(), bad.message()));
  for (const auto& entry : fs::directory_iterator(out)) {
    const std::string name = entry.path().filename().string();
    const bool is_result = (name.starts_with("loss_") && name.ends_with(".json")) ||
                           name == "verify.png" || name == "verify.svg";
    if (is_result && entry.is_regular_file()) fs::remove(entry.path());
  }
  Json mark;
  mark.set("made_by", Json(kMark));
  mark.set("ok", Json(false));
  write_file_atomic(out / kResultFile, mark.dump(2) + "\n");
}

// The first error of a log, for people.
std::string first_error(const fs::path& log, int exit_code) {
  const std::string text = read_file(log), mark = "error: ";
  for (size_t at = 0; (at = text.find(mark, at)) != std::string::npos; at += mark.size()) {
    const size_t end = text.find('\n', at);
    return text.substr(at + mark.size(), end - at - mark.size());
  }
  return fmt::format("weft train ended with exit code {}", exit_code);
}

bool is_on_tf32(const RunConfig& c) { return c.asks_tf32() && uses_gpus(c); }

// Operands of fewer bits than fp32: TF32, which has more than bf16, stays within bf16's tolerances.
bool is_rounded(const RunConfig& c) { return c.compute_dtype() != Dtype::kF32 || is_on_tf32(c); }

// Both in exact mode with the same constants: these promise the same bits.
bool are_exact(const Layout& a, const Layout& b) {
  return a.is_exact && b.is_exact && a.exact_tp == b.exact_tp && a.exact_dp == b.exact_dp &&
         a.exact_rows == b.exact_rows;
}

// Why the bits of two exact-mode layouts are not compared, and how to change that.
std::vector<std::string> explain_constants(const Layout& base, const Layout& layout) {
  std::vector<std::string> notes;
  if (!base.is_exact || !layout.is_exact) return notes;
  const auto compare = [&](const char* key, int64_t a, int64_t b, int64_t common) {
    if (a == b) return;
    notes.push_back(fmt::format(
        "{} is {}, the base's {}: bits are not compared; set it for all with --set parallel.{}={}, "
        "not in a layout",
        key, b, a, key, common));
  };
  // All are powers of two: what divides the smaller divides the larger.
  compare("exact_tp", base.exact_tp, layout.exact_tp, std::max(base.exact_tp, layout.exact_tp));
  compare("exact_dp", base.exact_dp, layout.exact_dp, std::max(base.exact_dp, layout.exact_dp));
  compare("exact_rows", base.exact_rows, layout.exact_rows,
          std::min(base.exact_rows, layout.exact_rows));
  return notes;
}

class Verifier {
 public:
  explicit Verifier(const VerifyOptions& options) : o_(options), runs_(plan_runs(options)) {
    const RunConfig& c = runs_[0].config;
    if (o_.out.empty() && is_remote(c.storage))
      throw UserError(
          fmt::format("storage is {}, but the runs that are compared are local", c.storage),
          "give a folder with --out");
    report_.out = o_.out.empty() ? fs::path(c.storage) / (c.name + "-verify") : o_.out;
    if (const auto fault = Fault::from_environment()) {
      const auto model = open_model(c, HfFolder(resolve_model_path(c.model.path)));  // all layouts'
      for (size_t i = 1; i < runs_.size(); ++i)
        fault->check(runs_[i].config, runs_[i].mesh, model.get());
      log_warning("{} is set: the first layout is trained without it", kFaultVariable);
    }
  }

  VerifyReport run() {
    prepare_out(report_.out);
    for (size_t i = 0; i < runs_.size() && report_.stop_signal == 0; ++i) train(i);
    if (report_.stop_signal == 0) {
      finish();
    } else {
      send_stop();
    }
    return std::move(report_);
  }

 private:
  // The result when a signal ends it: the layouts before the one in training.
  void send_stop() const {
    const size_t done = report_.layouts.size();
    size_t ok = 0;
    for (const VerifyResult& r : report_.layouts) ok += r.ok();
    log_error(
        "{}: stopped in layout {} of {}; partial results: {}", signal_name(report_.stop_signal),
        done + 1, runs_.size(),
        done < 2 ? std::string("nothing was compared")
                 : fmt::format("{} of {} layouts before it agree with the base", ok - 1, done - 1));
  }

  fs::path dir(size_t i) const { return report_.out / runs_[i].layout.label; }
  fs::path log(size_t i) const { return report_.out / (runs_[i].layout.label + ".log"); }

  void train(size_t i) {
    const PlannedRun& run = runs_[i];
    log_info("{} of {}: {}", i + 1, runs_.size(), run.layout.name);
    ChildStart start;
    start.argv = {"weft", "train", o_.run, "--run-dir", dir(i).string(), "--overwrite"};
    for (const std::string& set : run.sets) {
      start.argv.emplace_back("--set");
      start.argv.push_back(set);
    }
    start.env[kHashesVariable] = !run.mesh.is_exact ? "start" : compares_norms() ? "all" : "1";
    if (i == 0) start.env[kFaultVariable] = "";
    start.log = log(i);
    const ChildEnd end = run_child(start);
    report_.stop_signal = end.stop_signal;
    if (end.stop_signal != 0) return;
    read_back(i, end.exit_code);
  }

  // Whether bits may differ between the base and some layout.
  bool compares_norms() const {
    return !std::all_of(runs_.begin(), runs_.end(),
                        [&](const PlannedRun& r) { return are_exact(runs_[0].mesh, r.mesh); });
  }

  void read_back(size_t i, int exit_code) {
    VerifyRun run = read_verify_run(dir(i), runs_[i].layout.name);
    if (exit_code != 0) {
      run.error = first_error(log(i), exit_code);
      const std::string what = fmt::format("{}: {}", run.name, run.error);
      const std::string hint = fmt::format("the whole log is {}", log(i).string());
      if (exit_code == 2) throw UserError(what, hint);
      if (i == 0) throw RunError("the base failed: " + what, hint);
      log_error("{}", what);
    }
    if (i == 0) base_ = run;
    const bool exact = are_exact(runs_[0].mesh, runs_[i].mesh);
    const bool bf16 = is_rounded(runs_[i].config);
    report_.layouts.push_back(
        compare_runs(base_, run, choose_bars(exact, bf16, o_.max_diff, o_.mean_diff)));
    report_.layouts.back().notes = explain_constants(runs_[0].mesh, runs_[i].mesh);
    const VerifyResult& result = report_.layouts.back();
    if (!result.ok() && !exact && run.error.empty() && !result.tensor) name_largest(i);
    write_losses(i, run);
  }

  // Where bits may differ, name the tensor that is farthest from the base at the end.
  void name_largest(size_t i) {
    const Comparison found =
        compare_models(open_logical(dir(0).string()), open_logical(dir(i).string()));
    double largest = -1;
    for (const TensorDifference& d : found.differences) {
      const double size = std::isfinite(d.max_difference) ? d.max_difference : 1e300;
      if (d.name.find('#') != std::string::npos || size <= largest) continue;
      largest = size;
      report_.layouts.back().tensor = d.name;
    }
  }

  void write_losses(size_t i, const VerifyRun& run) {
    Json::Array losses;
    for (const VerifyRun::Step& s : run.steps) losses.push_back(number_or_null(s.loss));
    Json j;
    j.set("layout", Json(run.name));
    j.set("loss", Json(std::move(losses)));
    write_file_atomic(report_.out / fmt::format("loss_{}.json", runs_[i].layout.label),
                      j.dump() + "\n");
    ComparedCurve curve;
    curve.name = run.name;
    for (const VerifyRun::Step& s : run.steps) {
      if (s.loss) curve.loss.push_back({static_cast<double>(s.step), *s.loss});
    }
    for (const StepDifference& d : report_.layouts.back().differences) {
      if (i > 0) curve.difference.push_back({static_cast<double>(d.step), d.loss});
    }
    curves_.push_back(std::move(curve));
  }

  void finish() {
    const RunConfig& c = runs_[0].config;
    report_.title =
        fmt::format("{}: {} layouts, {} steps, {}{}", c.name, runs_.size(), base_.steps.size(),
                    c.train.precision,
                    is_on_tf32(c)                                                  ? " (TF32)"
                    : c.compute_dtype() == Dtype::kBf16 && !c.train.master_weights ? " (pure)"
                                                                                   : "");
    write_json();
    if (!has_pictures()) return;
    CurveComparison picture{report_.title, std::move(curves_), {}};
    for (const VerifyResult& r : report_.layouts) {
      if (!picture.bars.empty()) break;  // all layouts with tolerances have the same ones
      if (r.bars.max) picture.bars.emplace_back(fmt::format("max {:g}", *r.bars.max), *r.bars.max);
      if (r.bars.mean)
        picture.bars.emplace_back(fmt::format("mean {:g}", *r.bars.mean), *r.bars.mean);
    }
    draw_comparison(picture, report_.out / "verify.png");
    draw_comparison(picture, report_.out / "verify.svg");
  }

  void write_json() {
    Json j;
    j.set("made_by", Json(kMark));
    j.set("run", Json(o_.run));
    Json::Array layouts;
    for (size_t i = 0; i < runs_.size(); ++i) layouts.push_back(layout_json(i));
    j.set("layouts", Json(std::move(layouts)));
    j.set("ok", Json(report_.ok()));
    write_file_atomic(report_.out / kResultFile, j.dump(2) + "\n");
  }

  Json layout_json(size_t i) const {
    const VerifyResult& r = report_.layouts[i];
    const auto words = [](const std::vector<std::string>& list) {
      return Json(Json::Array(list.begin(), list.end()));
    };
    Json j = r.to_json();
    j.set("mode", Json(runs_[i].config.parallel.mode));
    j.set("max_bar", number_or_null(r.bars.max));
    j.set("mean_bar", number_or_null(r.bars.mean));
    j.set("norm_bar", number_or_null(r.bars.norm));
    j.set("gradient_bar", number_or_null(r.bars.gradient));
    j.set("bits_bar", Json(r.bars.bits));
    j.set("eval_loss", number_or_null(r.eval));
    j.set("steps", Json(r.num_steps));
    j.set("losses_different", Json(r.losses_different));
    j.set("norms_different", Json(r.norms_different));
    j.set("norm_diff", Json(r.norm_diff));
    j.set("gradient_diff", number_or_null(r.gradient_diff));  // null: none were compared
    j.set("evals", Json(r.num_evals));
    j.set("evals_different", Json(r.evals_different));
    // null: bits may differ, and only the initial weights of such a layout were hashed.
    j.set("tensors", r.bars.bits ? Json(r.num_tensors) : Json());
    j.set("tensors_different", words(r.tensors_different));
    j.set("different_at_end", r.bars.bits ? Json(r.different_at_end) : Json());
    j.set("broken", words(r.broken));
    j.set("notes", words(r.notes));
    j.set("run_dir", Json(dir(i).string()));
    j.set("log", Json(log(i).string()));
    j.set("ok", Json(r.ok()));
    return j;
  }

  const VerifyOptions& o_;
  std::vector<PlannedRun> runs_;
  VerifyReport report_;
  VerifyRun base_;
  std::vector<ComparedCurve> curves_;
};

}  // namespace

VerifyReport verify(const VerifyOptions& options) {
  // Also between children, while results are compared.
  static constexpr StopWords kWords{": stopped; the comparison is not finished", "", "", 1};
  const StopSignals signals(nullptr, kWords);
  return Verifier(options).run();
}

}  // namespace weft
