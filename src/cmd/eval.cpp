// cmd/eval.cpp: weft eval RUN.yaml.

#include "base/error.h"
#include "base/log.h"
#include "base/printable.h"
#include "base/stop.h"
#include "cmd/command.h"
#include "config/launch_env.h"
#include "launch/job.h"
#include "launch/rank_context.h"
#include "planning/backend.h"
#include "planning/layout.h"
#include "planning/precision.h"
#include "train/data_notes.h"
#include "train/eval_pass.h"
#include "train/evaluate.h"
#include "train/local_copy.h"
#include "train/mirror.h"

namespace weft {
namespace {

// Padding is not worth a line: every batch has some.
void warn_of_rows(DataCounters counters) {
  for (const std::string& where : counters.first_repaired) {
    log_warning("{}: bytes that are not UTF-8 were replaced", where);
  }
  warn_of_untargeted(counters);
  counters.padding = counters.untargeted = 0;
  if (const std::string text = counters.describe(); !text.empty()) log_warning("{}", text);
}

std::string whole_part(const EvalReport& report) {
  if (report.part == 1) return "the loss covers all rows, exact match was not finished";
  return fmt::format("the loss covers the first {:.0f} % of the rows", 100 * report.part);
}

void print(const EvalReport& report, bool is_json) {
  warn_of_rows(report.counters);
  if (report.stop_signal != 0)
    log_warning("{}: partial results: {}", signal_name(report.stop_signal), whole_part(report));
  if (is_json) return fmt::print("{}\n", report.to_json().dump());
  fmt::print("model          {}\n", printable_line(report.model));
  if (report.step) fmt::print("step           {}\n", *report.step);
  fmt::print("rows           {}\ntarget tokens  {}\n", report.rows, report.target_tokens);
  if (report.loss())
    fmt::print("eval loss      {:.6f}\nperplexity     {}\n", *report.loss(),
               perplexity_text(*report.loss(), 4));
  if (report.exact_match) fmt::print("exact match    {:.1f} %\n", 100 * *report.exact_match);
  if (report.sql_match) fmt::print("SQL match      {:.1f} %\n", 100 * *report.sql_match);
  fmt::print("tokens/s       {:.0f}\n", report.tokens_per_s);
}

// The model that is evaluated, where it is in an object store: --model, or the run itself.
std::string remote_model(const RunConfig& c, const std::string& given) {
  if (!given.empty() || !is_remote(c.storage)) return given;
  const std::string run = join_address(c.storage, c.name);
  return has_remote_model(run) ? run : given;
}

// Starts the ranks of the run file's layout, after a first look at it.
int supervise_eval(const RunConfig& c, const StopSignals& signals, std::vector<std::string> argv) {
  check_layout(c);
  check_backend(c, Purpose::kEval);
  JobOptions job;
  job.num_ranks = static_cast<int>(c.parallel.dp * c.parallel.tp);
  job.argv = std::move(argv);
  job.threads = static_cast<int>(c.launch.threads);
  job.early_words = kEvalWords.early;
  job.noted_words = kEvalWords.noted;
  return run_local_job(job, [&](const char*, int, const std::string&) { signals.hand_over(); });
}

}  // namespace

RunCommand add_eval(CommandOptions& app) {
  struct Words {
    std::string run, model;
    std::vector<std::string> sets;
    bool json = false, force = false;
  };
  auto w = std::make_shared<Words>();
  app.add_option(
         "RUN", w->run,
         "run file (YAML); with data.target all rows of data.eval are answered, and compared as "
         "eval.match says")
      ->required();
  app.add_option("--model", w->model,
                 "folder, checkpoint or run directory; default: the run's newest checkpoint");
  app.add_option("--set", w->sets, "section.key=value, overrides the run file")
      ->take_all()
      ->expected(1);
  app.add_flag("--json", w->json, "one JSON object");
  app.add_flag("--force", w->force, "evaluate even if this machine has too little memory");
  return [w] {
    const auto rank = RankContext::from_environment();
    set_log_quiet(rank && rank->rank > 0);
    std::optional<StopSignals> early;  // a rank has a supervisor that handles them
    if (!rank) early.emplace(nullptr, kEvalWords);
    RunFile file(w->run, w->sets, RunFile::Use::kEval);
    file.log_replaced();
    apply_launch_env(file.config().launch.env);  // ranks inherit it
    check_environment();
    const std::string precision = choose_precision(&file);
    if (!rank && !precision.empty()) log_info("{}", precision);
    const ParallelConfig& p = file.config().parallel;
    const LocalCopy copy(rank ? w->model : remote_model(file.config(), w->model));
    if (!rank && p.dp * p.tp > 1) {
      std::vector<std::string> words = copy.in(command_words());
      if (w->model.empty() && !copy.path().empty())  // else copy.in() has replaced it
        words.insert(words.end(), {"--model", copy.path()});
      return supervise_eval(file.config(), *early, std::move(words));
    }
    EvalOptions options{.shows = !rank || rank->rank == 0, .is_forced = w->force};
    if (rank) options.place = RankPlace{rank->rank, rank->threads, rank->world};
    const EvalReport report = evaluate(file.config(), copy.path(), nullptr, options);
    if (!rank || rank->rank == 0) print(report, w->json);
    return report.stop_signal == 0 ? 0 : 128 + report.stop_signal;
  };
}

}  // namespace weft
