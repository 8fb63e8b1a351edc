// train/eval_pass.cpp: batches until the end, or until any rank was asked to stop; then answers.
#include "train/eval_pass.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "base/elapsed.h"
#include "base/error.h"
#include "base/log.h"
#include "train/data_notes.h"
#include "train/next_batch.h"
#include "train/rank_agreement.h"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;

// The fraction of its rows, from 0 to 1, that a stream has returned including this batch.
double part_done(const BatchStream& stream, const Batch& batch) {
  return static_cast<double>(batch.after.position) /
         static_cast<double>(std::max<int64_t>(1, stream.num_raw_rows()));
}

std::string percent(const char* name, const std::optional<double>& value) {
  return value ? fmt::format(", {} {:.1f} %", name, 100 * *value) : "";
}

void record_pass(const EvalPass& pass, const EvalSums& sums, int64_t step, double seconds,
                 RunRecord& record) {
  EvalMetrics line;
  line.step = step;
  line.eval_loss = pass.loss;
  line.eval_time_s = seconds;
  if (pass.exact_match) line.more.emplace_back("exact_match", Json(*pass.exact_match));
  if (pass.sql_match) line.more.emplace_back("sql_match", Json(*pass.sql_match));
  line.more.emplace_back("eval_tokens_per_s", Json(sums.tokens_per_s()));
  record.evaluation(line);
  if (!pass.loss) return;
  log_info("step {}: eval loss {:.5f}, perplexity {}{}{}", step, *pass.loss,
           perplexity_text(*pass.loss), percent("exact match", pass.exact_match),
           percent("SQL match", pass.sql_match));
}

}  // namespace

std::string perplexity_text(double loss, int decimals) {
  constexpr double kLarge = 1e6;  // from here on decimals are meaningless
  const double value = std::exp(loss);
  return value < kLarge ? fmt::format("{:.{}f}", value, decimals) : fmt::format("{:.3g}", value);
}

std::string describe_partial(double part, std::optional<double> loss) {
  if (!loss) return "before its first batch was finished";
  return fmt::format("after {:.0f} % of its rows, eval loss {:.5f} so far", 100 * part, *loss);
}

std::optional<double> EvalSums::loss() const {
  return sums.target_tokens > 0 ? std::optional(sums.mean()) : std::nullopt;
}

double EvalSums::tokens_per_s() const {
  return seconds > 0 ? static_cast<double>(sums.tokens) / seconds : 0;
}

std::optional<double> EvalPass::value(const std::string& measure) const {
  if (measure == "eval_loss") return loss;
  ensure(measure == "exact_match" || measure == "sql_match", "no measure " + measure);
  return measure == "exact_match" ? exact_match : sql_match;
}

bool is_better(const std::string& measure, double value, std::optional<double> before) {
  if (!std::isfinite(value)) return false;
  if (!before || !std::isfinite(*before)) return true;
  return measure == "eval_loss" ? value < *before : value > *before;
}

EvalSums sum_losses(const EvalRows& rows, const EvalBatch& eval_batch,
                    const std::function<void(double part, double seconds)>& show) {
  const auto start = Clock::now();
  EvalSums out;
  Batch batch;
  const LengthPlans::IsStopped is_stopped = [&] {
    out.stop = agree_on_signal(rows.ranks, rows.signals.received());
    return out.stop != 0;
  };
  for (bool is_begun = false;;) {
    rows.ranks.note_phase(Phase::kData);
    const NextBatch next = std::exchange(is_begun, true)
                               ? next_batch(rows.stream, rows.ranks, rows.signals, batch)
                               : first_batch({}, rows.stream, rows.ranks, rows.signals, batch);
    out.stop = next.stop;
    out.error = next.error;
    if (next.stop != 0 || !next.is_there) break;
    rows.ranks.note_phase(Phase::kEvaluating);
    const std::optional<LossSums> more = eval_batch(batch, is_stopped);
    if (!more) break;
    out.sums.add(*more);
    out.part = part_done(rows.stream, batch);
    out.seconds = seconds_since(start);
    show(out.part, out.seconds);
  }
  if (out.stop == 0) out.part = 1;
  return out;
}

EvalPass evaluate_rows(const EvalRows& rows, Engine& engine, TrainingAnswers* answers,
                       RunRecord& record, int64_t step) {
  const double start = record.seconds();
  // Rank 0's answer for all: a rank that replaces a dead one has a new stream, and survivors do
  // not.
  const bool is_first = agree_on_number(rows.ranks, [&] {
                          return rows.stream.state() == StreamState{} ? 1 : 0;
                        }) == 1;
  const EvalSums sums = sum_losses(
      rows,
      [&](const Batch& batch, const auto& is_stopped) {
        return engine.eval_loss(batch, is_stopped);
      },
      [&](double part, double seconds) { record.show_part("evaluating", part, seconds); });
  EvalPass pass{sums.loss(), {}, {}, sums.stop, sums.error};
  if (pass.stop == 0 && answers) {
    const AnswerResult result =
        answers->measure([&](double part, double s) { record.show_part("answering", part, s); });
    pass.stop = result.stop;
    pass.exact_match = result.exact_match;
    pass.sql_match = result.sql_match;
  }
  record.clear_progress();
  if (pass.stop != 0) {
    log_info("step {}: the evaluation was abandoned {}; nothing of it is recorded", step,
             describe_partial(sums.part, sums.loss()));
    return {std::nullopt, {}, {}, pass.stop, pass.error};
  }
  if (is_first) warn_of_untargeted(sum_counters(rows.ranks, rows.stream.counters()));
  record_pass(pass, sums, step, record.seconds() - start, record);
  return pass;
}

}  // namespace weft
