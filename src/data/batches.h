// data/batches.h: the stream of batches that training and evaluation take, one a step.
//
// A thread of its own reads, tokenizes and pads a few batches ahead; what it throws is thrown at
// next(). Everything is a function of (rows, configuration, seed, state): a stream restored to a
// state gives the batches that the first would have given.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/config.h"
#include "data/example.h"
#include "data/rows.h"
#include "data/token_cache.h"
#include "text/tokenizer.h"

namespace weft {

// Where a stream stands, kept in checkpoints.
struct StreamState {
  int64_t epoch = 1;
  int64_t position = 0;  // in the epoch's order of raw rows: dropped ones count
  int64_t part = 0;      // pack: rows already given of those that begin at this position
  uint64_t files = 0;    // a hash of the files' sizes and times; 0: not known
  bool operator==(const StreamState&) const = default;
};

// Nothing is dropped in silence: the trainer prints these.
struct DataCounters {
  int64_t rows = 0;                         // given out; of packed ones, those that begin
  int64_t dropped = 0;                      // of one token or less
  int64_t truncated = 0;                    // longer than seq_length
  int64_t split = 0;                        // pack: rows that did not fit one
  int64_t nulls = 0;                        // cells, taken as empty
  int64_t unanswered = 0;                   // of prompt and answer, kept though the answer is empty
  int64_t untargeted = 0;                   // kept, though none of their tokens is a label
  int64_t repaired = 0;                     // held bytes that are no UTF-8
  int64_t incomplete = 0;                   // at the end of an epoch, less than a global batch
  int64_t tokens = 0;                       // positions that hold one
  int64_t padding = 0;                      // positions that do not
  std::vector<std::string> first_repaired;  // "file:line" of the first ten
  std::string first_untargeted;             // "file:line" of the first

  void add(const DataCounters& more);
  std::string describe() const;  // "12 rows dropped, 3 truncated, ..."; empty: nothing to tell
  double efficiency() const;     // tokens / positions
};

// The numbers of the counters, for who adds them up.
inline constexpr int64_t DataCounters::*kDataCounts[] = {
    &DataCounters::rows,       &DataCounters::dropped,  &DataCounters::truncated,
    &DataCounters::split,      &DataCounters::nulls,    &DataCounters::unanswered,
    &DataCounters::untargeted, &DataCounters::repaired, &DataCounters::incomplete,
    &DataCounters::tokens,     &DataCounters::padding};

// B rows: of a global batch this rank's share. Encoder-decoder: ids, targets and lengths are the
// decoder's, those of the source the encoder's.
// pack: a row is segments one after the other, numbered from 1, each with positions from 0. Of an
// encoder-decoder a pair has the same number on both sides, so that a position of the decoder sees
// those source positions that have its number; a side of no tokens leaves a number out.
struct Batch {
  int64_t num_rows = 0;               // B
  int64_t seq_length = 0;             // T
  std::vector<int64_t> pass_lengths;  // dynamic, by the pass: how much of T each needs
  std::vector<int32_t> ids;           // (B, T), padded on the right
  std::vector<int32_t> targets;       // (B, T), -1: no label
  std::vector<int32_t> lengths;       // (B), without padding
  std::vector<int64_t> row_numbers;   // (B), a row's own in its epoch, whatever the batch
  std::vector<int32_t> segments;      // pack: (B, T), from 1 in each row; 0: padding
  std::vector<int32_t> position_ids;  // pack: (B, T), from 0 in each segment
  int64_t source_length = 0;          // encoder-decoder: S
  std::vector<int64_t> pass_source_lengths;
  std::vector<int32_t> source_ids;           // (B, S)
  std::vector<int32_t> source_lengths;       // (B)
  std::vector<int32_t> source_segments;      // pack: (B, S)
  std::vector<int32_t> source_position_ids;  // pack: (B, S)
  int64_t tokens = 0;                        // without padding, of encoder and decoder
  int64_t positions = 0;                     // with it
  int64_t target_tokens = 0;
  bool has_targets = false;  // a row of the global batch, or of a window that begins in it, has one
  int64_t epoch = 1;         // to which these rows belong
  bool is_epoch_end = false;  // no further batch in this epoch
  StreamState after;          // restore() to it, and the next batch follows
  DataCounters counted;       // since the batch before
};

enum class Part {
  kAll,    // every row
  kTrain,  // without those that data.eval_fraction takes away
  kEval,   // only those
};

struct StreamOptions {
  uint64_t seed = 42;
  int64_t global_batch = 8;
  // Of the rows of a global batch a rank takes its share, rows_a_turn at a time in turn with the
  // others; 0: all of it at once. dp must divide the batch, and rows_a_turn the share. Order, state
  // and the length that `dynamic` pads to are the same on every rank.
  int64_t dp = 1, dp_rank = 0, rows_a_turn = 0;
  bool takes(int64_t k) const;  // row k of a global batch
  // dynamic: so many rows of the share are padded alike; 0, or where padding is learned: all rows.
  int64_t rows_a_pass = 0;
  int64_t vocab_size = INT64_MAX;
  Part part = Part::kAll;
  // Evaluation: file order, one epoch. The last batch may be short, the share of some ranks empty.
  bool once = false;
  int prefetch = 4;  // batches read ahead
  ModelKind kind = ModelKind::kCausal;
  int32_t decoder_start_id = -1;  // encoder-decoder: before the first target; -1: the padding's id
  CacheOptions cache;
};

// The lengths to which `dynamic` pads: multiples of 16 up to 64, then four an octave (80, 96, 112,
// 128, 160 ...), at most seq_length. So few plans, and less than a quarter of padding for it.
int64_t bucket_length(int64_t longest, int64_t seq_length);

// Rows that are computed together need no more positions than the longest of them: fills
// pass_lengths and, where there is a source, pass_source_lengths, and counts positions again.
void cut_passes(int64_t rows_a_pass, Batch& batch);

// What `pack` makes of an epoch.
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
  // batch (found here, or where dropped rows decide it, at next()).
  BatchStream(const DataConfig& config, const RowSource& rows, const Tokenizer& tokenizer,
              const StreamOptions& options);
  ~BatchStream();

  // Swaps the next batch into `out`, whose memory the stream uses again; takes none itself. False
  // at the end (once). StopError where it would wait and a signal asks to stop (base/stop.h).
  bool next(Batch& out);
  void restore(const StreamState& state);  // to before the first batch after `state`
  StreamState state() const;               // after the last batch given out
  const DataCounters& counters() const;    // of all batches given out

  // UserError where none of the first `most` rows after `from` has a target. Waits for rows up to
  // the first that has one.
  void require_targets(const StreamState& from, int64_t most);

  int64_t num_raw_rows() const;  // after fraction and limit, before anything is dropped
  // These wait until every row is tokenized: only for a schedule or an epoch count that needs the
  // end.
  int64_t count_kept_rows() const;
  int64_t count_steps_per_epoch(int64_t epoch = 1) const;  // of `pack`, epochs may differ
  int64_t count_steps(int64_t num_epochs) const;           // of the first ones together
  PackSize measure_pack(int64_t epoch = 1) const;

 private:
  class Producer;
  std::unique_ptr<Producer> producer_;
  StreamState state_;
  DataCounters counters_;
};

// Whether the row belongs to the evaluation part: by seed and row number alone.
bool is_eval_row(uint64_t seed, int64_t row, double eval_fraction);
// How many rows `fraction` and `limit` leave, the first ones.
int64_t rows_taken(const DataConfig& config, int64_t num_rows);

}  // namespace weft
