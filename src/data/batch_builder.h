// data/batch_builder.h: builds batches from the rows of the order.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "data/batches.h"
#include "data/eval_split.h"
#include "data/example.h"
#include "data/file_watch.h"
#include "data/order.h"
#include "data/pack.h"
#include "data/target_search.h"
#include "data/token_cache.h"

namespace weft {

class BatchBuilder {
 public:
  // `pack` packs the rows of this many positions at a time.
  static constexpr int64_t kPackRows = 4096;

  BatchBuilder(const DataConfig& config, const RowSource& rows, const Tokenizer& tokenizer,
               const StreamOptions& options);

  void restore(const StreamState& state);
  // Fills `out` with the next rows of the epoch; false: the epoch has no further whole batch (once:
  // no further row), and the leftover is in out.counted.
  bool fill(Batch& out);
  void next_epoch();
  void abandon() { cache_.abandon(); }  // a fill() that waits for rows throws

  StreamState state() const { return {epoch_, position_, part_, files_, splits_by_row_}; }
  int64_t num_raw_rows() const { return num_rows_; }
  int64_t global_batch() const { return options_.global_batch; }
  bool once() const { return options_.once; }
  bool packs() const { return config_.layout == "pack"; }
  bool answers() const { return options_.kind == ModelKind::kEncoderDecoder; }
  const DataConfig& config() const { return config_; }
  int64_t num_left() const { return num_left_; }  // rows, where fill() found no whole batch

  // Searches from a position on, at most `most` kept rows, for the first with a target.
  TargetSearch search_target(const StreamState& from, int64_t most);
  // Both wait for all rows.
  int64_t count_kept_rows();
  PackSize measure_pack(int64_t epoch);

 private:
  Order make_order(int64_t epoch) const;
  void take_rows(Batch& out);
  void take_packed(Batch& out);
  void count_window(Batch& out);
  void finish_batch(int64_t k, Batch& out);
  bool find_row(int64_t row, Batch& out);
  bool is_member(int64_t row) const;  // of the requested part
  void count_row(int64_t row, int64_t length, Batch& out);
  struct Packed {        // the rows of kPackRows positions
    int64_t first = -1;  // position; -1: none loaded
    std::vector<int64_t> rows;
    std::vector<PackedRow> packed;
  };
  using LengthOf = std::function<RowLength(int64_t row)>;
  Packed load_pack(const Order& order, int64_t first, const LengthOf& length_of) const;
  LengthOf length_in_cache();
  std::string pack_key(int64_t epoch) const;
  PackSize count_packs(int64_t epoch);
  static void add_pack(const Packed& window, PackSize* size);
  void put_rows(Batch& out);
  void reset_tensors(Batch& out) const;
  void put_causal(const CachedRow& row, int64_t b, Batch& out) const;
  void put_answer(const CachedRow& row, int64_t b, Batch& out) const;
  void put_packed(const PackedRow& row, int64_t b, Batch& out);
  void put_packed_answers(const PackedRow& row, int64_t b, Batch& out);

  DataConfig config_;
  const RowSource& rows_;
  StreamOptions options_;
  ExampleMaker maker_;
  int64_t num_rows_;
  uint64_t files_ = 0;
  FileWatch watch_;
  TokenCache cache_;
  bool splits_by_row_;
  EvalSplit split_;
  int64_t epoch_ = 1, position_ = 0, part_ = 0;
  int64_t first_epoch_ = 0;  // epoch of the first batch
  Order order_;

  std::vector<CachedRow> taken_;  // of the current batch; memory is reused
  size_t num_taken_ = 0;
  int64_t num_found_ = 0, num_left_ = 0;  // of the global batch: all ranks' rows
  int64_t longest_ = 1, longest_source_ = 1;
  bool has_named_untargeted_ = false;
  std::vector<int64_t> row_numbers_;  // of the current batch
  CachedRow info_;
  Packed pack_;
  std::vector<PackedRow> chosen_;  // pack: rows of the current batch
  std::vector<std::vector<int64_t>> chosen_rows_;
};

}  // namespace weft
