// train/batch_runner.cpp: copies rows into the executor's inputs.
#include "train/batch_runner.h"

#include <algorithm>

#include "base/error.h"
#include "tensor/names.h"

namespace weft {

void take_share(const RunConfig& c, const Layout& layout, int rank, StreamOptions* options) {
  options->dp = layout.dp;
  options->dp_rank = layout.dp_rank(rank);
  const bool in_turn = layout.data(rank, c.num_passes()).is_pass_major();
  options->rows_a_turn = in_turn ? c.micro_batch() : 0;
  // Exact mode pads to the longest row of the global batch, which no layout changes.
  options->rows_a_pass = layout.is_exact ? 0 : c.micro_batch();
}

int64_t pass_length(const Batch& batch, int64_t pass) {
  if (batch.pass_lengths.empty()) return batch.seq_length;
  const auto last = static_cast<int64_t>(batch.pass_lengths.size()) - 1;
  return batch.pass_lengths[static_cast<size_t>(std::min(pass, last))];
}

BatchRunner::BatchRunner(Executor* executor, const Passes& passes)
    : executor_(executor), passes_(passes) {}

void BatchRunner::run(const Batch& batch, int64_t pass) {
  feed(batch, pass);
  StepScalars scalars;
  scalars.pass = static_cast<int>(pass);
  scalars.is_last_pass = pass + 1 == passes_.count;
  executor_->run_pass(scalars);
}

void BatchRunner::feed(const Batch& batch, int64_t pass) {
  const int64_t first_row = pass * passes_.rows, T = pass_length(batch, pass);
  const int64_t have = std::clamp<int64_t>(batch.num_rows - first_row, 0, passes_.rows);
  // `from` has rows of `stride`, of which `width` elements are copied.
  const auto put = [&](const std::vector<int32_t>& from, int64_t stride, int64_t width,
                       int32_t rest, int32_t* to) {
    for (int64_t row = 0; row < have; ++row, to += width) {
      std::copy_n(from.data() + (first_row + row) * stride, width, to);
    }
    std::fill_n(to, (passes_.rows - have) * width, rest);
  };
  put(batch.ids, batch.seq_length, T, 0, executor_->input<int32_t>(names::kIds));
  put(batch.targets, batch.seq_length, T, -1, executor_->input<int32_t>(names::kTargets));
  put(batch.lengths, 1, 1, 0, executor_->input<int32_t>(names::kLengths));
  int32_t* positions = executor_->input<int32_t>(names::kPositions);  // null: rows are not packed
  if (positions) put(batch.position_ids, batch.seq_length, T, 0, positions);
  int64_t* rows = executor_->input<int64_t>(names::kRows);  // null: no dropout
  if (rows && static_cast<int64_t>(batch.row_numbers.size()) != batch.num_rows)
    throw BugError("dropout needs a number for every row");  // ensure() would allocate
  for (int64_t row = 0; rows && row < passes_.rows; ++row) {
    rows[2 * row] = batch.epoch;
    rows[2 * row + 1] = row < have ? batch.row_numbers[static_cast<size_t>(first_row + row)] : -1;
  }
}

}  // namespace weft
