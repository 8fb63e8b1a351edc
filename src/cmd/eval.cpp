// cmd/eval.cpp: weft eval RUN.yaml.
#include <CLI/CLI.hpp>

#include "base/error.h"
#include "base/log.h"
#include "base/printable.h"
#include "base/stop.h"
#include "cmd/command.h"
#include "train/data_notes.h"
#include "train/eval_pass.h"
#include "train/evaluate.h"

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

}  // namespace

RunCommand add_eval(CLI::App& app) {
  struct Words {
    std::string run, model;
    std::vector<std::string> sets;
    bool json = false, force = false;
  };
  auto w = std::make_shared<Words>();
  app.add_option("RUN", w->run, "run file (YAML)")->required();
  app.add_option("--model", w->model,
                 "folder, checkpoint or run directory; default: the run's newest checkpoint");
  app.add_option("--set", w->sets, "section.key=value, overrides the run file")
      ->take_all()
      ->expected(1);
  app.add_flag("--json", w->json, "one JSON object");
  app.add_flag("--force", w->force, "evaluate even if this machine has too little memory");
  return [w] {
    const RunFile file(w->run, w->sets);
    const EvalReport report =
        evaluate(file.config(), w->model, nullptr, {.shows = true, .is_forced = w->force});
    warn_of_rows(report.counters);
    const int exit_code = report.stop_signal == 0 ? 0 : 128 + report.stop_signal;
    if (exit_code != 0)
      log_warning("{}: partial results: {}", signal_name(report.stop_signal), whole_part(report));
    if (w->json) {
      fmt::print("{}\n", report.to_json().dump());
      return exit_code;
    }
    fmt::print("model          {}\n", printable_line(report.model));
    if (report.step) fmt::print("step           {}\n", *report.step);
    fmt::print("rows           {}\ntarget tokens  {}\n", report.rows, report.target_tokens);
    if (report.loss())
      fmt::print("eval loss      {:.6f}\nperplexity     {}\n", *report.loss(),
                 perplexity_text(*report.loss(), 4));
    if (report.exact_match) fmt::print("exact match    {:.1f} %\n", 100 * *report.exact_match);
    return exit_code;
  };
}

}  // namespace weft
