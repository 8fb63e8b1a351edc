// data/batch.h: the rows of one step, as tensors by the names of a model's inputs.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/counters.h"
#include "tensor/dtype.h"
#include "tensor/lengths.h"

namespace weft {

// The position of a stream, stored in checkpoints.
struct StreamState {
  int64_t epoch = 1;
  int64_t position = 0;        // in the epoch's order of raw rows, including dropped ones
  int64_t part = 0;            // pack: rows already used of those that begin at this position
  uint64_t files = 0;          // hash of the files' sizes, times and sampled bytes; 0: unknown
  bool splits_by_row = false;  // the rule of data.eval_fraction (EvalSplit)
  bool operator==(const StreamState&) const = default;
};

// One input of the model: `width` elements for every row of the batch.
struct BatchTensor {
  std::string name;           // tensor/names.h
  Dtype dtype = Dtype::kI32;  // or kI64
  int64_t width = 1;
  std::vector<std::byte> bytes;

  std::byte* row(int64_t b) { return bytes.data() + b * row_bytes(); }
  const std::byte* row(int64_t b) const { return bytes.data() + b * row_bytes(); }
  int64_t row_bytes() const { return width * dtype_bytes(dtype); }
};

// B rows: this rank's share of a global batch. The tensors of tensor/names.h that the data
// provides: always ids, targets, lengths and rows; those of the source where there is one
// (encoder-decoder; ids, targets and lengths are then the decoder's); segments and positions of
// either side where rows are packed; positions also where the model needs them always.
// pack: a row is a sequence of segments, numbered from 1, each with positions from 0. For an
// encoder-decoder a pair has the same number on both sides, so that a decoder position sees the
// source positions with its number; a pair of which a side has no tokens is alone in its row.
struct Batch {
  int64_t num_rows = 0;               // B
  Lengths padded;                     // T and S
  std::vector<Lengths> pass_lengths;  // dynamic, per pass: how much of T and S each needs
  std::vector<BatchTensor> tensors;
  int64_t tokens = 0;     // without padding, of encoder and decoder
  int64_t positions = 0;  // with it
  int64_t target_tokens = 0;
  bool has_targets =
      false;          // some row of the global batch, or of a window that begins in it, has one
  int64_t epoch = 1;  // to which these rows belong
  bool is_epoch_end = false;  // no further batch in this epoch
  StreamState after;          // restore() to it continues with the next batch
  DataCounters counted;       // since the previous batch

  const BatchTensor* find(std::string_view name) const;  // null: the batch has none
  // The elements of a tensor, row after row; T is int32_t or int64_t. BugError where the batch has
  // none of that name and type.
  template <typename T = int32_t>
  std::span<T> values(std::string_view name);
  template <typename T = int32_t>
  std::span<const T> values(std::string_view name) const;
  // num_rows rows of `width` times `value`. The memory of an existing tensor is reused.
  template <typename T = int32_t>
  std::span<T> reset(std::string_view name, int64_t width, T value);
  // Takes ownership of the elements of all rows.
  template <typename T = int32_t>
  void set(std::string_view name, int64_t width, const std::vector<T>& values);
};

// How much of each row a pass computes.
Lengths pass_length(const Batch& batch, int64_t pass);

// The lengths to which `dynamic` pads: multiples of 16 up to 64, then four per octave (80, 96, 112,
// 128, 160 ...), at most seq_length. So there are few plans, at the price of less than a quarter of
// padding.
int64_t bucket_length(int64_t longest, int64_t seq_length);

// Rows that are computed together need no more positions than the longest of them: fills
// pass_lengths, and recounts positions.
void cut_passes(int64_t rows_per_pass, Batch& batch);

}  // namespace weft
