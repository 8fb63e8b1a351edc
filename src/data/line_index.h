// data/line_index.h: where the lines of a text begin, without a list of all of them.
//
// A mark (line number, byte offset) is kept every 64 lines, or 16 KiB of text where that is less:
// at most a quarter of a byte a line and a thousandth of the file. A line is found by a binary
// search and a scan of at most 63 lines and 16 KiB before it.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace weft {

class LineIndex {
 public:
  // One pass over `text`, which must outlive the index. skip_blank: lines of white space alone
  // are not counted (JSON lines).
  LineIndex(std::string_view text, bool skip_blank);

  int64_t size() const { return num_lines_; }
  std::string_view line(int64_t i) const;  // without its line end, \n or \r\n
  int64_t line_number(int64_t i) const;    // in the file, from 1; a scan: for messages only

 private:
  struct Mark {
    int64_t line;
    uint64_t offset;
  };
  uint64_t find(int64_t i) const;  // the offset of counted line i

  std::string_view text_;
  bool skip_blank_;
  std::vector<Mark> marks_;
  int64_t num_lines_ = 0;
};

}  // namespace weft
