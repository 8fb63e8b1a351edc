// data/line_index.cpp: marks, and scans between them.
#include "data/line_index.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "data/record.h"

namespace weft {
namespace {

constexpr int64_t kMarkLines = 64;
constexpr uint64_t kMarkBytes = uint64_t{1} << 14;
constexpr uint64_t kReportBytes = uint64_t{1} << 24;

}  // namespace

LineMarks LineIndex::scan(std::string_view text, RowFormat format, uint64_t begin,
                          const Passed& passed) {
  LineMarks found;
  uint64_t reported = begin;
  for (uint64_t at = begin; at < text.size();) {
    const RecordEnd end = record_end(format, text, at);
    const uint64_t next = end.at;
    const std::string_view record = text.substr(at, next - at);
    found.open_quote = end.open_quote;
    if (is_counted(format, record)) {
      if (found.marks.empty() || at - found.marks.back().offset >= kMarkBytes ||
          found.num_lines - found.marks.back().line >= kMarkLines) {
        found.marks.push_back({found.num_lines, at});
      }
      ++found.num_lines;
    } else {
      found.num_blank += has_blank_fields(format, record);
    }
    at = next;
    if (at - reported >= kReportBytes) passed(std::exchange(reported, at), at);
  }
  passed(reported, text.size());
  found.marks.shrink_to_fit();
  return found;
}

uint64_t LineIndex::offset(int64_t i) const {
  ensure(i >= 0 && i < size(), "a record of the text");
  const auto after =
      std::upper_bound(found_.marks.begin(), found_.marks.end(), i,
                       [](int64_t line, const LineMarks::Mark& m) { return line < m.line; });
  const LineMarks::Mark& mark = *std::prev(after);
  int64_t line = mark.line;
  uint64_t at = mark.offset;
  while (true) {
    const uint64_t next = record_end(format_, text_, at).at;
    if (is_counted(format_, text_.substr(at, next - at))) {
      if (line == i) return at;
      ++line;
    }
    at = next;
  }
}

std::string_view LineIndex::line(int64_t i) const {
  const uint64_t at = offset(i);
  return text_.substr(at, record_end(format_, text_, at).at - at);
}

int64_t LineIndex::line_number(uint64_t offset) const {
  return 1 + std::count(text_.begin(), text_.begin() + static_cast<int64_t>(offset), '\n');
}

}  // namespace weft
