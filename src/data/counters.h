// data/counters.h: what happened to the rows on their way into batches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace weft {

inline constexpr size_t kNamedRows = 10;  // of each kind, by file and line

// Nothing is dropped silently: the trainer prints these.
struct DataCounters {
  int64_t rows = 0;                          // returned; of packed ones, those that begin
  int64_t dropped = 0;                       // of one token or less
  int64_t truncated = 0;                     // longer than seq_length or target_length
  int64_t sources_cut = 0, targets_cut = 0;  // of these: of rows that have both parts
  int64_t split = 0;                         // pack: rows that did not fit one
  int64_t nulls = 0;                         // cells, treated as empty
  int64_t unanswered = 0;                   // of prompt and answer, kept though the answer is empty
  int64_t untargeted = 0;                   // kept, though none of their tokens is a label
  int64_t repaired = 0;                     // contained invalid UTF-8
  int64_t incomplete = 0;                   // at the end of an epoch, less than a global batch
  int64_t tokens = 0;                       // positions with a token
  int64_t padding = 0;                      // positions without
  std::vector<std::string> first_repaired;  // "file:line" of the first
  std::string first_untargeted;             // "file:line" of the first

  void add(const DataCounters& more);
  std::string describe() const;  // "12 rows dropped, 3 truncated, ..."; empty: nothing to report
  double efficiency() const;     // tokens / positions
};

// The counters as numbers, for summing over ranks.
inline constexpr int64_t DataCounters::*kDataCounts[] = {
    &DataCounters::rows,        &DataCounters::dropped,     &DataCounters::truncated,
    &DataCounters::sources_cut, &DataCounters::targets_cut, &DataCounters::split,
    &DataCounters::nulls,       &DataCounters::unanswered,  &DataCounters::untargeted,
    &DataCounters::repaired,    &DataCounters::incomplete,  &DataCounters::tokens,
    &DataCounters::padding};

double tokens_per_position(int64_t tokens, int64_t positions);  // 1 where there are none

}  // namespace weft
