// train/batch_runner.cpp: the places of the inputs are looked up once.
#include "train/batch_runner.h"

#include <algorithm>

namespace weft {

Share share_of(const RunConfig& c, const Layout& layout, int rank) {
  const int64_t rows = c.micro_batch(), passes = c.num_passes(), dp_rank = layout.dp_rank(rank);
  const bool pass_major = layout.data(rank, passes).is_pass_major();
  if (pass_major) return {rows, passes, dp_rank * rows, layout.dp * rows};
  return {rows, passes, dp_rank * rows * passes, rows};
}

BatchRunner::BatchRunner(Executor* executor, const Share& share)
    : executor_(executor),
      share_(share),
      ids_(executor->at<int32_t>("ids")),
      targets_(executor->at<int32_t>("targets")),
      lengths_(executor->at<int32_t>("lengths")),
      loss_sum_(executor->at<ExactSum>("loss_sum")) {}

ExactSum BatchRunner::run(const Batch& batch) {
  StepScalars scalars;
  for (int64_t pass = 0; pass < share_.num_passes; ++pass) {
    feed(batch, share_.first_row(pass));
    scalars.pass = static_cast<int>(pass);
    scalars.is_last_pass = pass + 1 == share_.num_passes;
    executor_->run_pass(scalars);
  }
  return *loss_sum_;
}

void BatchRunner::feed(const Batch& batch, int64_t first_row) {
  const int64_t T = batch.seq_length, rows = share_.rows_a_pass;
  const int64_t have = std::clamp<int64_t>(batch.num_rows - first_row, 0, rows);
  const int64_t empty = rows - have;
  std::copy_n(batch.ids.data() + first_row * T, have * T, ids_);
  std::copy_n(batch.targets.data() + first_row * T, have * T, targets_);
  std::copy_n(batch.lengths.data() + first_row, have, lengths_);
  std::fill_n(ids_ + have * T, empty * T, 0);
  std::fill_n(targets_ + have * T, empty * T, -1);
  std::fill_n(lengths_ + have, empty, 0);
}

}  // namespace weft
