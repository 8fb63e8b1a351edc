// train/batch_runner.cpp: the places of the inputs are looked up once.
#include "train/batch_runner.h"

#include <algorithm>

namespace weft {

void take_share(const RunConfig& c, const Layout& layout, int rank, StreamOptions* options) {
  options->dp = layout.dp;
  options->dp_rank = layout.dp_rank(rank);
  const bool in_turn = layout.data(rank, c.num_passes()).is_pass_major();
  options->rows_a_turn = in_turn ? c.micro_batch() : 0;
}

BatchRunner::BatchRunner(Executor* executor, const Passes& passes)
    : executor_(executor),
      passes_(passes),
      ids_(executor->at<int32_t>("ids")),
      targets_(executor->at<int32_t>("targets")),
      lengths_(executor->at<int32_t>("lengths")),
      positions_(executor->at<int32_t>("positions")),
      loss_sum_(executor->at<ExactSum>("loss_sum")) {}

ExactSum BatchRunner::run(const Batch& batch) {
  StepScalars scalars;
  for (int64_t pass = 0; pass < passes_.count; ++pass) {
    feed(batch, pass * passes_.rows);
    scalars.pass = static_cast<int>(pass);
    scalars.is_last_pass = pass + 1 == passes_.count;
    executor_->run_pass(scalars);
  }
  return *loss_sum_;
}

void BatchRunner::feed(const Batch& batch, int64_t first_row) {
  const int64_t T = batch.seq_length, rows = passes_.rows;
  const int64_t have = std::clamp<int64_t>(batch.num_rows - first_row, 0, rows);
  const int64_t empty = rows - have;
  const auto put = [&](const std::vector<int32_t>& from, int64_t width, int32_t rest, int32_t* to) {
    std::copy_n(from.data() + (have > 0 ? first_row * width : 0), have * width, to);
    std::fill_n(to + have * width, empty * width, rest);
  };
  put(batch.ids, T, 0, ids_);
  put(batch.targets, T, -1, targets_);
  put(batch.lengths, 1, 0, lengths_);
  if (positions_) put(batch.position_ids, T, 0, positions_);
}

}  // namespace weft
