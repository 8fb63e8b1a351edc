// data/line_index.h: where the records of a text begin, without a list of all of them.
//
// A mark (record number, byte offset) is kept every 64 records, or 16 KiB of text where that is
// less: at most a quarter of a byte per record and a thousandth of the file. A record is found by a
// binary search and a scan of at most 63 records and 16 KiB before it.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

#include "data/rows.h"

namespace weft {

// Result of one pass over a text.
struct LineMarks {
  struct Mark {
    int64_t line;
    uint64_t offset;
  };
  std::vector<Mark> marks;
  int64_t num_lines = 0;
  int64_t num_blank = 0;  // TSV: lines of separators and blanks only
  uint64_t open_quote = UINT64_MAX;
};

class LineIndex {
 public:
  // One pass over `text`, which must outlive the index, from `begin` on (after a header). `passed`
  // is called now and then with the current position, so that the caller can release the pages of a
  // mapped file.
  using Passed = std::function<void(uint64_t begin, uint64_t end)>;
  LineIndex(
      std::string_view text, RowFormat format, uint64_t begin = 0,
      const Passed& passed = [](uint64_t, uint64_t) {})
      : LineIndex(text, format, scan(text, format, begin, passed)) {}
  LineIndex(std::string_view text, RowFormat format, LineMarks found)
      : text_(text), format_(format), found_(std::move(found)) {}

  static LineMarks scan(std::string_view text, RowFormat format, uint64_t begin,
                        const Passed& passed);

  int64_t size() const { return found_.num_lines; }
  int64_t num_blank() const { return found_.num_blank; }
  // CSV: position of an unclosed quote; npos: none.
  size_t open_quote() const { return found_.open_quote; }
  std::string_view line(int64_t i) const;      // with its line end
  uint64_t offset(int64_t i) const;            // of counted record i
  int64_t line_number(uint64_t offset) const;  // in the file, from 1; a scan: for messages only

 private:
  std::string_view text_;
  RowFormat format_;
  LineMarks found_;
};

}  // namespace weft
