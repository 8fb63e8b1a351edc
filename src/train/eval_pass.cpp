// train/eval_pass.cpp: batches until the end, or until any rank was asked to stop.
#include "train/eval_pass.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/log.h"
#include "train/data_notes.h"
#include "train/next_batch.h"
#include "train/rank_agreement.h"

namespace weft {

double part_done(const BatchStream& stream, const Batch& batch) {
  return static_cast<double>(batch.after.position) /
         static_cast<double>(std::max<int64_t>(1, stream.num_raw_rows()));
}

std::string perplexity_text(double loss, int decimals) {
  constexpr double kLarge = 1e6;  // from here on decimals are meaningless
  const double value = std::exp(loss);
  return value < kLarge ? fmt::format("{:.{}f}", value, decimals) : fmt::format("{:.3g}", value);
}

std::string describe_partial(double part, std::optional<double> loss) {
  if (!loss) return "before its first batch was finished";
  return fmt::format("after {:.0f} % of its rows, eval loss {:.5f} so far", 100 * part, *loss);
}

EvalPass evaluate_rows(BatchStream& stream, Engine& engine, Ranks& ranks,
                       const StopSignals& signals, RunRecord& record, int64_t step) {
  const double start = record.seconds();
  EvalPass pass;
  LossSums sums;
  Batch batch;
  double part = 0;
  const auto is_stopped = [&] {
    pass.stop = agree_on_signal(ranks, signals.received());
    return pass.stop != 0;
  };
  const bool is_first = stream.state() == StreamState{};
  for (bool is_begun = false;;) {
    const NextBatch next = std::exchange(is_begun, true)
                               ? next_batch(stream, ranks, signals, batch)
                               : first_batch({}, stream, ranks, signals, batch);
    pass.stop = next.stop;
    pass.error = next.error;
    if (next.stop != 0 || !next.is_there) break;
    const std::optional<LossSums> more = engine.eval_loss(batch, is_stopped);
    if (!more) break;
    sums.add(*more);
    part = part_done(stream, batch);
    record.show_part("evaluating", part, record.seconds() - start);
  }
  record.clear_progress();
  const auto loss = sums.target_tokens > 0 ? std::optional(sums.mean()) : std::nullopt;
  if (pass.stop != 0) {
    log_info("step {}: the evaluation was abandoned {}; nothing of it is recorded", step,
             describe_partial(part, loss));
    return pass;
  }
  pass.loss = loss;
  if (is_first) warn_of_untargeted(sum_counters(ranks, stream.counters()));
  EvalMetrics line;
  line.step = step;
  line.eval_loss = loss;
  line.eval_time_s = record.seconds() - start;
  record.evaluation(line);
  if (loss)
    log_info("step {}: eval loss {:.5f}, perplexity {}", step, *loss, perplexity_text(*loss));
  return pass;
}

}  // namespace weft
