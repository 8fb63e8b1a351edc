// train/evaluate.cpp: one pass of the loss over the rows, then greedy answers where there are
// targets.
#include "train/evaluate.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/list.h"
#include "checkpoint/load.h"
#include "comm/comm.h"
#include "config/session.h"
#include "generate/generator.h"
#include "generate/stop_ids.h"
#include "model/head_in_files.h"
#include "planning/gpu_memory_check.h"
#include "planning/idle_keys.h"
#include "planning/memory_check.h"
#include "planning/precision.h"
#include "planning/rank_plans.h"
#include "track/progress.h"
#include "train/answers.h"
#include "train/eval_engine.h"
#include "train/eval_pass.h"
#include "train/next_batch.h"
#include "train/rank_agreement.h"
#include "train/run_history.h"
#include "train/same_model.h"
#include "train/start_state.h"
#include "train/weights.h"

namespace weft {
namespace {

std::string choose_model(const RunConfig& c, const std::string& given) {
  if (!given.empty()) return given;
  const std::filesystem::path run = std::filesystem::path(c.storage) / c.name;
  if (!list_checkpoints(run).empty()) {
    warn_of_early_stop(run, "--model ");
    return run.string();
  }
  if (c.model.init == "random") {
    throw UserError(fmt::format("{} has no checkpoint yet, and model.init is random: there is no "
                                "model to evaluate",
                                run.string()),
                    "run `weft train` with this file first, or give --model");
  }
  log_warning("{} has no checkpoint yet: evaluating model.path itself", run.string());
  return resolve_model_path(c.model.path).string();
}

// A process alone is the only rank, whatever the run file's layout.
RunConfig alone(RunConfig c) {
  c.parallel.dp = c.parallel.tp = 1;
  return c;
}

// All ranks must have found enough memory before the first allocates it.
void check_arena(const std::string& what, int64_t bytes, Ranks& ranks, const Backend& backend,
                 bool is_forced, const std::string& hint) {
  if (backend.device->is_host()) {
    check_arena_memory(what, bytes * ranks.size(), hint, is_forced);
  } else {
    check_gpu_memory(what, bytes, *backend.device, hint + ", or set launch.device to cpu");
  }
  if (ranks.size() > 1) ranks.world().barrier();
}

// The model is built from model.path's configuration: other weights may have another head.
void check_head(const Session& session, const LogicalModel& source) {
  if (source.config.is_null() || has_same_head(source.config, session.model_config)) return;
  throw UserError(
      fmt::format("{} has a head of another kind than model.path, {}: tie_word_embeddings or "
                  "scale_decoder_outputs differ",
                  source.path.string(), session.folder.path().string()),
      fmt::format("evaluate it with --set model.path={} --set model.init=pretrained",
                  source.path.string()));
}

// One rank of an evaluation.
struct EvalRank {
  const RunConfig& config;
  const Session& session;
  const RowSource& rows;
  const LogicalModel& source;
  const Backend& backend;
  Ranks& ranks;
  ThreadPool* pool;
  const StopSignals& signals;
  const EvalOptions& options;
};

void measure_loss(const EvalRank& r, EvalReport* report) {
  std::optional<ScopedNoDeadline> loading(std::in_place, r.ranks.world());
  EvalEngine engine(r.config, *r.session.model, &r.ranks, r.backend, r.pool);
  check_arena("the evaluation", engine.arena_bytes(), r.ranks, r.backend, r.options.is_forced,
              "lower train.micro_batch or data.seq_length");
  engine.load(r.source);
  loading.reset();
  StreamOptions share = r.session.eval_stream();
  take_share(r.config, r.ranks.layout(), r.ranks.rank(), &share);
  BatchStream stream(r.config.data, r.rows, *r.session.tokenizer, share);
  Progress progress(choose_progress_style(!r.options.shows), 0, 1);
  r.signals.hold();
  const EvalSums sums = sum_losses(
      {stream, r.ranks, r.signals},
      [&](const Batch& batch, const auto& is_stopped) {
        return engine.eval_loss(batch, is_stopped);
      },
      [&](double part, double seconds) { progress.part("evaluating", part, seconds); });
  progress.clear();
  if (sums.stop == kRowsFailed) end_with_error(r.ranks, sums.error);
  report->loss_sum = sums.sums.loss.value();
  report->target_tokens = sums.sums.target_tokens;
  report->tokens_per_s = sums.tokens_per_s();
  report->part = sums.part;
  report->stop_signal = sums.stop;
  report->counters = sum_counters(r.ranks, stream.counters());
  report->rows = report->counters.rows;
}

int64_t largest(Ranks& ranks, int64_t mine) {
  const std::vector<int64_t> all = gather_numbers(ranks, mine);
  return *std::max_element(all.begin(), all.end());
}

// In the layout of the loss; its weights are read once more.
Matches answer_all(const EvalRank& r) {
  const std::vector<int32_t> stop_ids =
      read_stop_ids(*r.session.tokenizer, r.source.config, r.source.path);
  const Questions q = read_questions(r.session, r.rows, stop_ids, share_of(r.ranks, 0));
  const int64_t max_new = answer_tokens(r.config.eval, largest(r.ranks, q.longest_answer));
  const Model& model = *r.session.model;
  const GeneratePlans plans =
      make_generate_plans(model,
                          answer_options(r.config, model, r.ranks.layout(), r.ranks.rank(),
                                         largest(r.ranks, q.longest_prompt), max_new),
                          *r.backend.kernels, r.pool->num_threads());
  const ArenaLayout layout = layout_of(plans);
  check_arena("the generation of answers", layout.total_bytes(), r.ranks, r.backend,
              r.options.is_forced, "lower data.seq_length");
  const auto arena = make_pass_arena(&r.ranks, layout.total_bytes(), r.backend.device);
  const SharedArena shared(&r.ranks, r.backend.device, *r.backend.kernels, arena->data(),
                           arena->bytes());
  Generator generator(model, plans, layout, *arena, r.pool, answering_ranks(r.ranks));
  for (const Executor* executor : generator.executors())
    Weights(*executor, model, false, r.pool).load(r.source);
  warn_of_questions(r.ranks, q, r.config);
  return answer_questions(generator, q, *r.session.tokenizer, stop_ids, max_new);
}

void measure_matches(const EvalRank& r, EvalReport* report) {
  const ScopedNoDeadline no_deadline(r.ranks.world());  // ranks may have answers of other lengths
  Matches mine;
  int stop = 0;
  try {
    mine = answer_all(r);
  } catch (const StopError& e) {  // the others learn of it below
    stop = e.signal();
  }
  report->stop_signal = agree_on_signal(r.ranks, stop);
  if (report->stop_signal != 0) return;
  const Matches all = sum_matches(r.ranks, mine);
  report->exact_match = all.exact_match();
  if (r.config.eval.match == "sql") report->sql_match = all.sql_match();
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
  out.set("sql_match", value(sql_match));
  out.set("eval_tokens_per_s", Json(tokens_per_s));
  if (step) out.set("step", *step);
  if (stop_signal != 0) {
    out.set("stopped_by", Json(signal_name(stop_signal)));
    out.set("part", Json(part));  // of the rows
  }
  return out;
}

namespace {

// final/ has no state; the checkpoints next to final/ belong to the same run.
bool was_split_by_row(const LogicalModel& source) {
  if (source.kind == LogicalModel::Kind::kCheckpoint)
    return splits_by_row(CheckpointReader(source.path).state());
  std::error_code none;
  const auto folder = std::filesystem::weakly_canonical(source.path, none);  // final/, or a link
  if (folder.filename() != "final") return false;
  const CheckpointSearch found = find_sound_checkpoint(folder.parent_path());
  return found.sound && splits_by_row(found.state);
}

}  // namespace

EvalReport evaluate(const RunConfig& given_config, const std::string& model, const Backend* given,
                    const EvalOptions& options) {
  const RankPlace place =
      options.place.value_or(RankPlace{0, choose_threads(given_config.launch), nullptr});
  const StopSignals signals(place.world.get(), kEvalWords);
  if (!given_config.has_eval()) {
    throw UserError(
        "the run file has no rows for evaluation",
        "give data.eval, or data.eval_fraction, for example with --set data.eval=[FILE]");
  }
  const RunConfig config = place.world ? given_config : alone(given_config);
  Session session(config);
  const auto ranks = make_ranks(config, *session.model, place);
  std::optional<ScopedNoDeadline> starting(std::in_place, ranks->world());  // reading may take long
  const auto rows = session.open_eval_rows();
  EvalReport report;
  // A run that is training may save a checkpoint meanwhile: all ranks use the one that rank 0
  // found.
  std::optional<LogicalModel> found;
  const std::string path = agree_on_text(*ranks, [&] {
    report.model = choose_model(config, model);
    found.emplace(open_logical(report.model));
    return found->path.string();
  });
  if (!found) found.emplace(open_logical(path));
  const LogicalModel& source = *found;
  session.splits_by_row = config.data.eval_fraction > 0 && was_split_by_row(source);
  session.check_eval_rows(*rows);
  check_same_architecture(source, session);
  if (source.kind == LogicalModel::Kind::kCheckpoint) {
    report.step = CheckpointReader(source.path).state().at("step").as_int();
  }
  check_head(session, source);
  const bool is_named = config.model.init != "random" && source.path == session.folder.path();
  if (!is_named) warn_of_unknown_tensors(source);
  ThreadPool pool(place.threads);
  const Backend own = given ? Backend{} : open_backend(config, ranks->rank(), Purpose::kEval);
  if (const std::string line = fp16_warning(config, session.model_config); !line.empty())
    log_warning("{}", line);
  if (!given) report_device(config, *own.device);
  const Backend& backend = given ? *given : own;
  const EvalRank rank{config, session, *rows, source, backend, *ranks, &pool, signals, options};
  starting.reset();
  measure_loss(rank, &report);
  if (!config.data.target.empty() && report.stop_signal == 0) measure_matches(rank, &report);
  return report;
}

}  // namespace weft
