// train/run_report.cpp: the lines in the order that suits a reader.
#include "train/run_report.h"

#include <cstdlib>
#include <utility>

#include "base/log.h"
#include "data/column_hint.h"
#include "planning/backend.h"
#include "planning/idle_keys.h"
#include "planning/precision.h"
#include "text/known_templates.h"
#include "train/data_notes.h"
#include "train/rank_agreement.h"
#include "train/run_history.h"
#include "train/start_line.h"

namespace weft {
namespace {

Json to_json(const std::optional<double>& v) { return v ? Json(*v) : Json(); }
std::string show(const std::optional<double>& v) { return v ? fmt::format("{:.5f}", *v) : "none"; }

}  // namespace

void report_start(const StartReport& r, Engine& engine, Ranks& ranks, RunRecord& record) {
  const RunConfig& c = r.file.config();
  Json::Array arenas;
  for (const int64_t bytes : gather_numbers(ranks, engine.arena_bytes()))
    arenas.push_back(Json(bytes));
  int64_t read_bytes = 0;
  for (const int64_t bytes : gather_numbers(ranks, r.loaded.bytes)) read_bytes += bytes;
  Json::Object started = {
      {"arena_bytes", Json(engine.arena_bytes())},
      {"arenas", Json(std::move(arenas))},
      {"step", Json(r.state.step)},
      {"total_steps", r.length.is_bound ? Json() : Json(r.length.steps)},
      {"from", r.start.checkpoint ? Json(r.start.checkpoint->string()) : Json()},
      {"read_bytes", Json(read_bytes)},
      {"read_s", Json(r.loaded.seconds)},
      {"generation", Json(r.generation)},
      {"ranks", Json(ranks.size())},
      {"threads", Json(engine.pool()->num_threads())},
      {"kernels", Json(engine.plans().train.options.kernels->name)}};
  started.emplace_back("data", sources_to_json(c.data, r.rows, r.eval_rows));
  if (const char* job = std::getenv("SLURM_JOB_ID")) started.emplace_back("slurm_job", Json(job));
  record.event("started", started);
  if (!r.loaded.conversion.empty()) {
    record.event("converted",
                 {{"step", Json(r.state.step)}, {"message", Json(r.loaded.conversion)}});
    log_info("{}", r.loaded.conversion);
  }
  if (!r.start.checkpoint) log_info("{}", r.file.resolved());
  for (const std::string& line : idle_keys(c, *r.session.model)) log_warning("{}", line);
  warn_of_schedule(c.train.schedule, r.length, {r.state.step, r.state.updates, record.last_lr()});
  if (const std::string line = fp16_warning(c, r.session.model_config); !line.empty())
    log_warning("{}", line);
  report_device(c, r.device);
  log_info("{}", start_line(c, *r.session.model, ranks.layout(), &engine, r.device));
  report_sources(c.data, r.rows, r.eval_rows);
  for (const std::string& line : template_warnings(c.data)) log_warning("{}", line);
  if (!c.data.messages.empty() && !has_chat_template(r.session.tokenizer->files()))
    log_info(
        "data.messages: the model has no chat template; rows are written as plain ChatML, and "
        "final/ includes that template as {}",
        kTemplateFile);
  if (r.pack_size) log_info("data: {}", describe_pack(*r.pack_size));
}

void report_finish(const RunConfig& config, const std::filesystem::path& dir,
                   const TrainState& state, const DataCounters& rows,
                   std::optional<int64_t> best_step, RunRecord& record) {
  const int64_t skipped = state.step - state.updates, overflowed = state.scaling.skipped(),
                empty = skipped - overflowed;
  const TrainConfig& train = config.train;
  Json::Object finished = {{"step", Json(state.step)},
                           {"epochs", train.steps ? Json() : Json(train.epochs)},
                           {"loss", to_json(record.final_loss())},
                           {"skipped_steps", Json(skipped)}};
  if (best_step) {
    finished.emplace_back("reason", Json(kEarlyStop));
    finished.emplace_back("best_step", Json(*best_step));
    finished.emplace_back("evals_without_progress", Json(state.evals_without_progress));
  }
  record.event("finished", finished);
  report_counters(rows);
  if (overflowed > 0)
    log_info("{} of {} steps overflowed in fp16 and changed nothing", overflowed, state.step);
  if (empty > 0)
    log_info("{} of {} steps had no target token and changed nothing", empty, state.step);
  const int64_t stalled = state.evals_without_progress;
  if (best_step)
    log_info(
        "stopped early: {} without a better {} than that of step {}, whose model "
        "is in final/",
        fmt::format("{} evaluation{}", stalled, stalled == 1 ? "" : "s"), config.checkpoint.best,
        *best_step);
  if (best_step && config.checkpoint.best != "eval_loss" && state.best == 0.0)
    log_warning(
        "no answer has matched so far, so no evaluation counted as better than the first, and the "
        "best is that with the lowest eval_loss: raise train.early_stop, or set checkpoint.best to "
        "eval_loss");
  record.draw_curve(config.name);
  log_info("finished step {} in {}; training: final loss {}, best loss {}; model in {}{}",
           state.step, format_duration(record.total_seconds()), show(record.final_loss()),
           show(record.best_loss()), (dir / "final").string(),
           best_step ? fmt::format(" (step {})", *best_step) : "");
}

}  // namespace weft
