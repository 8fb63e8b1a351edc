// train/batch_runner.cpp: the places of the inputs are looked up once.
#include "train/batch_runner.h"

#include <algorithm>

namespace weft {

BatchRunner::BatchRunner(Executor* executor, int64_t micro_batch)
    : executor_(executor),
      micro_batch_(micro_batch),
      ids_(executor->at<int32_t>("ids")),
      targets_(executor->at<int32_t>("targets")),
      lengths_(executor->at<int32_t>("lengths")),
      loss_sum_(executor->at<double>("loss_sum")) {}

double BatchRunner::run(const Batch& batch) {
  StepScalars scalars;
  for (int64_t row = 0; row < batch.num_rows; row += micro_batch_, ++scalars.pass) {
    feed(batch, row);
    executor_->run_pass(scalars);
  }
  return *loss_sum_;
}

void BatchRunner::feed(const Batch& batch, int64_t first_row) {
  const int64_t T = batch.seq_length;
  const int64_t have = std::clamp<int64_t>(batch.num_rows - first_row, 0, micro_batch_);
  const int64_t empty = micro_batch_ - have;
  std::copy_n(batch.ids.data() + first_row * T, have * T, ids_);
  std::copy_n(batch.targets.data() + first_row * T, have * T, targets_);
  std::copy_n(batch.lengths.data() + first_row, have, lengths_);
  std::fill_n(ids_ + have * T, empty * T, 0);
  std::fill_n(targets_ + have * T, empty * T, -1);
  std::fill_n(lengths_ + have, empty, 0);
}

}  // namespace weft
