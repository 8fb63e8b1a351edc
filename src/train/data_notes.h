// train/data_notes.h: what is said about the rows: bad ones as they come, counts at the end.
#pragma once

#include <cstddef>
#include <cstdint>

#include "data/batches.h"
#include "train/record.h"

namespace weft {

class DataNotes {
 public:
  // Warns of what the counters name that was not named before: the first ten rows that held bytes
  // which are no UTF-8, and the first that has no target.
  void name_rows(const DataCounters& counters, RunRecord& record);

 private:
  size_t num_repaired_ = 0;
  bool has_untargeted_ = false;
};

// What happened to all ranks' rows, into the log, where there is something to say.
void report_counters(const DataCounters& all);

// The same of an evaluation: rows that do not count in its loss.
void warn_of_untargeted(const DataCounters& all);

// RunError where there were steps and none changed anything: a final/ of the weights that a run
// began with would pass for a trained model.
void check_learned(int64_t steps, int64_t updates, bool has_overflowed);

}  // namespace weft
