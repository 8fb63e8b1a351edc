// data/batch_builder.h: rows of the order, one after the other, put into batches.
#pragma once

#include <cstdint>

#include "data/batches.h"
#include "data/example.h"
#include "data/order.h"

namespace weft {

class BatchBuilder {
 public:
  BatchBuilder(const DataConfig& config, const RowSource& rows, const Tokenizer& tokenizer,
               const StreamOptions& options);

  void restore(const StreamState& state);
  // Fills `out` with the next rows of the epoch; false: the epoch has no whole batch more (once:
  // no row more), and what was left is in out.counted.
  bool fill(Batch& out);
  void next_epoch();

  StreamState state() const { return {epoch_, position_}; }
  int64_t num_raw_rows() const { return num_rows_; }
  bool is_member(int64_t row) const;  // of the part that is asked for
  bool is_kept(int64_t row) const;    // a member that is not dropped; safe from several threads
  bool keeps_all() const { return !config_.drop_empty; }
  int64_t global_batch() const { return options_.global_batch; }
  bool once() const { return options_.once; }

 private:
  bool take_row(int64_t row, Batch& out);
  void put_row(const Example& example, Batch& out);

  DataConfig config_;
  const RowSource& rows_;
  StreamOptions options_;
  ExampleMaker maker_;
  int64_t num_rows_;
  int64_t epoch_ = 1;
  int64_t position_ = 0;
  Order order_;
  Row row_;
  Example example_;
};

}  // namespace weft
