// data/target_search.h: rejects data without any labels at the start.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "data/example.h"

namespace weft {

// The result of searching the rows in the order of a run, up to the first that has a target (a
// token that is a label).
struct TargetSearch {
  bool is_found = false;
  int64_t rows = 0;       // examined, without dropped ones
  int64_t truncated = 0;  // of them
  bool is_whole = false;  // all rows were examined, not only those that the run uses
};

// UserError with what was searched for, and the key that may be wrong.
[[noreturn]] void refuse_without_targets(const DataConfig& config, const TargetSearch& search);

// For an evaluation, which uses the first num_rows rows that are members in file order. UserError
// where none of them has a target: there is no loss to measure. `which`: the rows, for messages.
void require_eval_targets(const DataConfig& config, const ExampleMaker& maker,
                          const RowSource& rows, int64_t num_rows,
                          const std::function<bool(int64_t)>& is_member, const std::string& which);

}  // namespace weft
