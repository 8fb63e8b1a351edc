// train/data_notes.h: messages about the rows: bad ones as they occur, counts at the end.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/json.h"
#include "data/batches.h"
#include "train/record.h"

namespace weft {

class DataNotes {
 public:
  // Warns of what is new in the counters: the first ten rows with invalid UTF-8, and the first
  // without a target.
  void name_rows(const DataCounters& counters, RunRecord& record);

 private:
  size_t num_repaired_ = 0;
  bool has_untargeted_ = false;
};

// Logs which files are read, how many rows they hold, and which files of the folders are ignored.
void report_sources(const DataConfig& data, const RowSource& rows, const RowSource* eval_rows);
// The fields of the event `started`: {"train": {...}, "eval": {...}}.
Json sources_to_json(const DataConfig& data, const RowSource& rows, const RowSource* eval_rows);

// Logs what happened to all ranks' rows, where there is something to report.
void report_counters(const DataCounters& all);

// The same for an evaluation: rows that do not count in its loss.
void warn_of_untargeted(const DataCounters& all);

// RunError where there were steps and none changed anything: a final/ with the initial weights
// would look like a trained model.
void check_learned(int64_t steps, int64_t updates, bool has_overflowed);

}  // namespace weft
