// data/batches.h: the stream of batches for training and evaluation, one per step.
//
// A separate thread prefetches a few batches: it reads, tokenizes and pads; its exceptions are
// rethrown by next(). Everything is a function of (rows, configuration, seed, state): a stream
// restored to a state yields the batches that the first one would have.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/batch.h"
#include "data/config.h"
#include "data/example.h"
#include "data/rows.h"
#include "data/token_cache.h"
#include "text/tokenizer.h"

namespace weft {

enum class Part {
  kAll,    // every row
  kTrain,  // without those that data.eval_fraction selects
  kEval,   // only those
};

struct StreamOptions {
  uint64_t seed = 42;
  int64_t global_batch = 8;
  // A rank gets its share of a global batch's rows, rows_per_turn at a time in turn with the
  // others; 0: all of it at once. dp must divide the batch, and rows_per_turn the share. Order,
  // state and the length that `dynamic` pads to are the same on every rank.
  int64_t dp = 1, dp_rank = 0, rows_per_turn = 0;
  bool takes(int64_t k) const;  // row k of a global batch
  // dynamic: this many rows of the share are padded to one length; 0, or where padding is learned:
  // all rows.
  int64_t rows_per_pass = 0;
  int64_t vocab_size = INT64_MAX;
  Part part = Part::kAll;
  bool splits_by_row = false;  // the old data.eval_fraction rule; also set by a restored state
  // Evaluation: file order, one epoch. The last batch may be short, the share of some ranks empty.
  bool once = false;
  int prefetch = 4;  // batches to prefetch
  ModelKind kind = ModelKind::kCausal;
  bool needs_positions = false;   // also of rows that are not packed
  int32_t decoder_start_id = -1;  // encoder-decoder: the token before the first target
  CacheOptions cache;
};

// The result of `pack` for an epoch.
struct PackSize {
  int64_t rows = 0;       // of the data
  int64_t sequences = 0;  // packed rows
  int64_t tokens = 0;
  int64_t positions = 0;      // of the packed rows, of encoder and decoder
  double efficiency() const;  // tokens / positions
};

class BatchStream {
 public:
  // rows and tokenizer must outlive the stream. UserError where there are fewer rows than a global
  // batch (detected here, or where dropped rows matter, in next()).
  BatchStream(const DataConfig& config, const RowSource& rows, const Tokenizer& tokenizer,
              const StreamOptions& options);
  ~BatchStream();

  // Swaps the next batch into `out`, whose memory the stream reuses; does not allocate. False
  // at the end (once). StopError where it would wait and a signal asks to stop (base/stop.h).
  bool next(Batch& out);
  void restore(const StreamState& state);  // to before the first batch after `state`
  StreamState state() const;               // after the last batch returned
  const DataCounters& counters() const;    // of all batches returned
  void set_counters(const DataCounters& counters) { counters_ = counters; }  // of a restored stream

  // UserError where none of the first `most` rows after `from` has a target. Waits for rows up to
  // the first that has one.
  void require_targets(const StreamState& from, int64_t most);

  int64_t num_raw_rows() const;  // after fraction and limit, before anything is dropped
  // These wait until every row is tokenized: only for a schedule or an epoch count that needs the
  // end.
  int64_t count_kept_rows() const;
  int64_t count_steps_per_epoch(int64_t epoch = 1) const;  // with `pack`, epochs may differ
  int64_t count_steps(int64_t num_epochs) const;           // of the first ones together
  PackSize measure_pack(int64_t epoch = 1) const;

 private:
  class Producer;
  std::unique_ptr<Producer> producer_;
  StreamState state_;
  DataCounters counters_;
};

// How many of the first rows `fraction` and `limit` keep.
int64_t rows_taken(const DataConfig& config, int64_t num_rows);

}  // namespace weft
