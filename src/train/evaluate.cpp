// train/evaluate.cpp: one pass of the loss over the rows, then greedy answers where there are
// targets.
#include "train/evaluate.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/list.h"
#include "checkpoint/load.h"
#include "config/session.h"
#include "data/example.h"
#include "generate/generator.h"
#include "generate/stop_ids.h"
#include "graph/autodiff.h"
#include "planning/gpu_memory_check.h"
#include "planning/idle_keys.h"
#include "planning/memory_check.h"
#include "track/progress.h"
#include "train/engine.h"
#include "train/eval_pass.h"

namespace weft {
namespace {

std::string choose_model(const RunConfig& c, const std::string& given) {
  if (!given.empty()) return given;
  const std::filesystem::path run = std::filesystem::path(c.storage) / c.name;
  if (!list_checkpoints(run).empty()) return run.string();
  if (c.model.init == "random") {
    throw UserError(fmt::format("{} has no checkpoint yet, and model.init is random: there is no "
                                "model to evaluate",
                                run.string()),
                    "run `weft train` with this file first, or give --model");
  }
  log_warning("{} has no checkpoint yet: evaluating model.path itself", run.string());
  return resolve_model_path(c.model.path).string();
}

// With one rank; in exact mode the bits are those of any layout.
RunConfig alone(RunConfig c) {
  c.parallel.dp = c.parallel.tp = 1;
  return c;
}

// The answers to a signal.
constexpr StopWords kWords{": stopped before anything was evaluated",
                           ": stopping; what was evaluated so far follows",
                           ", the second signal: exiting at once", 128 + SIGINT};

// Batches up to the end, or to a signal.
void run_batches(LengthPlans& plans, BatchStream& stream, Progress& progress, EvalReport* report) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  Batch batch;
  ExactSum sum;
  try {
    while (stream.next(batch)) {
      throw_if_stopped();
      plans.run(batch);
      sum.add(plans.losses());
      report->target_tokens += batch.target_tokens;
      report->counters.add(batch.counted);
      report->part = part_done(stream, batch);
      progress.part("evaluating", report->part,
                    std::chrono::duration<double>(Clock::now() - start).count());
    }
    report->part = 1;
  } catch (const StopError& e) {
    report->stop_signal = e.signal();
  }
  progress.clear();
  report->loss_sum = sum.value();
}

void check_arena(const std::string& what, int64_t bytes, const Backend& backend, bool is_forced,
                 const std::string& hint) {
  if (!backend.device->is_host())
    return check_gpu_memory(what, bytes, *backend.device, hint + ", or set launch.device to cpu");
  check_arena_memory(what, bytes, hint, is_forced);
}

void measure_loss(const Session& session, const RowSource& rows, const LogicalModel& source,
                  const Backend& backend, ThreadPool* pool, const StopSignals& signals,
                  const EvalOptions& options, EvalReport* report) {
  const RunConfig c = alone(session.config);
  const Layout mesh = resolve_layout(c, *session.model);
  const auto plan =
      make_eval_plan(c, *session.model, mesh, 0, *backend.kernels, pool->num_threads());
  ArenaLayout layout;
  layout.add(plan);
  check_arena("the evaluation", layout.total_bytes(), backend, options.is_forced,
              "lower train.micro_batch or data.seq_length");
  const Arena arena(layout.total_bytes(), backend.device);
  const auto plans =
      make_eval_lengths(plan, c, *session.model, mesh, 0, {layout, arena, pool, Mesh{}});
  Executor& executor = plans->longest();
  executor.fill([&](const auto& open) { session.model->fill_constants(plan.graph, open); });
  Weights(executor, *session.model, false, pool).load(source);
  BatchStream stream(c.data, rows, *session.tokenizer, session.eval_stream());
  Progress progress(choose_progress_style(!options.shows), 0, 1);
  signals.hold();
  run_batches(*plans, stream, progress, report);
  report->rows = report->counters.rows;
}

// Prompts and answers of the kept rows, as training sees them.
struct Questions {
  std::vector<std::vector<int32_t>> prompts;  // of the rows that have one
  std::vector<std::string> answers;           // to those prompts
  int64_t num_rows = 0;                       // including rows without one
  int64_t longest_prompt = 0, longest_answer = 0;
};

Questions read_questions(const Session& session, const RowSource& rows) {
  const RunConfig& c = session.config;
  const ExampleMaker maker(c.data, *session.tokenizer, session.model->vocab_size());
  const int64_t num_rows = rows_taken(c.data, rows.size());
  Questions q;
  Row row;
  Example example;
  for (int64_t i = 0; i < num_rows; ++i) {
    if (!session.is_in_eval_part(i)) continue;
    rows.read(i, row);
    if (!maker.make(rows, i, row, example)) continue;
    ++q.num_rows;
    const int64_t num_source = example.num_source;
    if (num_source == 0 || num_source >= session.model->max_positions()) continue;
    q.prompts.emplace_back(example.ids.begin(), example.ids.begin() + num_source);
    q.answers.push_back(maker.answer(rows, i, row));
    q.longest_prompt = std::max(q.longest_prompt, num_source);
    q.longest_answer =
        std::max(q.longest_answer, static_cast<int64_t>(example.ids.size()) - num_source);
  }
  return q;
}

std::optional<double> measure_exact_match(const Session& session, const RowSource& rows,
                                          const LogicalModel& source, const Backend& backend,
                                          ThreadPool* pool, bool is_forced) {
  const Questions q = read_questions(session, rows);
  if (q.num_rows == 0) return std::nullopt;
  if (q.prompts.empty()) return 0;
  GenerateOptions options;
  options.compute = session.config.compute_dtype();
  options.max_positions =
      std::min(session.model->max_positions(), q.longest_prompt + q.longest_answer + 2);
  GeneratePlans plans =
      make_generate_plans(*session.model, options, *backend.kernels, pool->num_threads());
  check_arena("the generation of answers", layout_of(plans).total_bytes(), backend, is_forced,
              "lower data.seq_length");
  Generator generator(
      *session.model, std::move(plans), pool,
      [&](const ParameterSpec& spec, Dtype dtype, void* data) {
        load_parameter(source, spec, dtype, data);
      },
      backend.device);
  SampleOptions sample;
  sample.max_new_tokens = q.longest_answer + 1;
  sample.stop_ids = read_stop_ids(*session.tokenizer, source.config, source.path);
  const auto made = generator.generate(q.prompts, sample);
  int64_t equal = 0;
  for (size_t i = 0; i < made.size(); ++i) {
    equal += decode_continuation(made[i], *session.tokenizer, sample.stop_ids) == q.answers[i];
  }
  return static_cast<double>(equal) / static_cast<double>(q.num_rows);
}

}  // namespace

std::optional<double> EvalReport::loss() const {
  if (target_tokens == 0) return std::nullopt;
  return loss_sum / static_cast<double>(target_tokens);
}

Json EvalReport::to_json() const {
  const auto value = [](const std::optional<double>& v) { return v ? Json(*v) : Json(); };
  const std::optional<double> mean = loss();
  Json out;
  out.set("eval_loss", value(mean));
  out.set("perplexity", mean ? Json(std::exp(*mean)) : Json());
  out.set("rows", rows);
  out.set("target_tokens", target_tokens);
  out.set("exact_match", value(exact_match));
  if (step) out.set("step", *step);
  if (stop_signal != 0) {
    out.set("stopped_by", Json(signal_name(stop_signal)));
    out.set("part", Json(part));  // of the rows
  }
  return out;
}

EvalReport evaluate(const RunConfig& config, const std::string& model, const Backend* given,
                    const EvalOptions& options) {
  const StopSignals signals(nullptr, kWords);
  if (!config.has_eval()) {
    throw UserError(
        "the run file has no rows for evaluation",
        "give data.eval, or data.eval_fraction, for example with --set data.eval=[FILE]");
  }
  const Session session(config);
  const auto rows = session.open_eval_rows();
  session.check_eval_rows(*rows);
  EvalReport report;
  report.model = choose_model(config, model);
  const LogicalModel source = open_logical(report.model);
  if (source.kind == LogicalModel::Kind::kCheckpoint) {
    report.step = CheckpointReader(source.path).state().at("step").as_int();
  }
  const bool is_named = config.model.init != "random" && source.path == session.folder.path();
  if (!is_named) warn_of_unknown_tensors(source);
  ThreadPool pool(choose_threads(config.launch));
  const Backend own = given ? Backend{} : open_backend(alone(config), 0, Purpose::kEval);
  if (!given) report_device(alone(config), *own.device);
  const Backend& backend = given ? *given : own;
  measure_loss(session, *rows, source, backend, &pool, signals, options, &report);
  if (config.data.target.empty() || report.stop_signal != 0) return report;
  try {
    report.exact_match =
        measure_exact_match(session, *rows, source, backend, &pool, options.is_forced);
  } catch (const StopError& e) {
    report.stop_signal = e.signal();
  }
  return report;
}

}  // namespace weft
