// data/batch_builder.cpp: padding, targets and counts of a batch.
#include "data/batch_builder.h"

#include <algorithm>

#include "base/error.h"

namespace weft {
namespace {

constexpr size_t kNamedRows = 10;

Order make_order(const DataConfig& config, const StreamOptions& options, int64_t num_rows,
                 int64_t epoch) {
  return {num_rows, config.shuffle && !options.once, options.seed, epoch};
}

void clear(Batch& out, int64_t max_rows, int64_t T) {
  const size_t cells = static_cast<size_t>(max_rows * T);
  out.num_rows = out.tokens = out.positions = out.target_tokens = 0;
  out.seq_length = T;
  out.is_epoch_end = false;
  out.ids.resize(cells);
  out.targets.resize(cells);
  out.lengths.resize(static_cast<size_t>(max_rows));
  out.counted = DataCounters();
}

}  // namespace

BatchBuilder::BatchBuilder(const DataConfig& config, const RowSource& rows,
                           const Tokenizer& tokenizer, const StreamOptions& options)
    : config_(config),
      rows_(rows),
      options_(options),
      maker_(config, tokenizer, options.vocab_size),
      num_rows_(rows_taken(config, rows.size())),
      order_(make_order(config, options, num_rows_, 1)) {
  require(options.global_batch >= 1, "train.global_batch: wanted at least 1, got {}",
          options.global_batch);
}

void BatchBuilder::restore(const StreamState& state) {
  require(state.epoch >= 1 && state.position >= 0 && state.position <= num_rows_,
          "the checkpoint stands at row {} of epoch {}, but the data has {} rows", state.position,
          state.epoch, num_rows_);
  epoch_ = state.epoch;
  position_ = state.position;
  order_ = make_order(config_, options_, num_rows_, epoch_);
}

void BatchBuilder::next_epoch() { restore({epoch_ + 1, 0}); }

bool BatchBuilder::is_member(int64_t row) const {
  if (options_.part == Part::kAll) return true;
  return is_eval_row(options_.seed, row, config_.eval_fraction) == (options_.part == Part::kEval);
}

bool BatchBuilder::is_kept(int64_t row) const {
  if (!is_member(row)) return false;
  if (keeps_all()) return true;
  Row columns;
  rows_.read(row, columns);
  return maker_.is_kept(rows_, row, columns);
}

bool BatchBuilder::fill(Batch& out) {
  clear(out, options_.global_batch, config_.seq_length);
  out.epoch = epoch_;
  while (position_ < num_rows_ && out.num_rows < options_.global_batch) {
    const int64_t row = order_.at(position_++);
    if (is_member(row) && take_row(row, out)) put_row(example_, out);
  }
  const bool is_whole = out.num_rows == options_.global_batch;
  if (!is_whole && !options_.once) {
    out.counted.incomplete = out.num_rows;
    out.num_rows = 0;
  }
  out.positions = out.num_rows * out.seq_length;
  if (out.num_rows > 0) {
    out.counted.rows = out.num_rows;
    out.counted.padding = out.positions - out.tokens;
  }
  const size_t cells = static_cast<size_t>(out.positions);
  out.ids.resize(cells);
  out.targets.resize(cells);
  out.lengths.resize(static_cast<size_t>(out.num_rows));
  out.after = state();
  return out.num_rows > 0;
}

// Reads and tokenizes into example_; false: dropped.
bool BatchBuilder::take_row(int64_t row, Batch& out) {
  rows_.read(row, row_);
  if (row_.repaired) {
    ++out.counted.repaired;
    if (out.counted.first_repaired.size() < kNamedRows) {
      out.counted.first_repaired.push_back(rows_.where(row));
    }
  }
  if (!maker_.make(rows_, row, row_, example_)) {
    ++out.counted.dropped;
    return false;
  }
  out.counted.truncated += example_.truncated;
  return true;
}

// The target of position t is token t + 1 where that is a label. With mask_padding off the label
// row is the padded row itself, shifted, as transformers does when labels hold the padding.
void BatchBuilder::put_row(const Example& example, Batch& out) {
  const int64_t T = config_.seq_length, n = static_cast<int64_t>(example.ids.size());
  int32_t* ids = out.ids.data() + out.num_rows * T;
  int32_t* targets = out.targets.data() + out.num_rows * T;
  std::copy(example.ids.begin(), example.ids.end(), ids);
  std::fill(ids + n, ids + T, maker_.pad_id());
  const int64_t end = config_.mask_padding ? n : T;  // labels end before
  for (int64_t t = 0; t < T; ++t) {
    const bool is_label = t + 1 >= example.first_label && t + 1 < end;
    targets[t] = is_label ? ids[t + 1] : -1;
  }
  out.lengths[static_cast<size_t>(out.num_rows)] = static_cast<int32_t>(n);
  out.target_tokens += std::max<int64_t>(0, end - example.first_label);
  out.tokens += n;
  ++out.num_rows;
}

}  // namespace weft
