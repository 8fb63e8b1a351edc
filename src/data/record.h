// data/record.h: where the rows of a text begin and end, by format, and how to parse one.
//
// A *record* is the text of one row: a line, or several lines joined by CSV quotes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "data/rows.h"

namespace weft {

struct RecordEnd {
  size_t at;                                   // after its line end
  bool is_whole;                               // false: the text ends before the record does
  size_t open_quote = std::string_view::npos;  // CSV: position of an unclosed quote
};
RecordEnd record_end(RowFormat format, std::string_view text, size_t at);
// Blank lines are not records in JSON lines and CSV.
bool is_counted(RowFormat format, std::string_view record);
// Whether an uncounted record is more than a blank line: TSV fields with only blanks.
bool has_blank_fields(RowFormat format, std::string_view record);
// Refuses a text whose lines end with carriage returns only: the whole text would be one row.
bool ends_lines_with_cr(std::string_view text);
[[noreturn]] void refuse_cr_lines(const std::string& name);
std::string_view without_line_end(std::string_view record);
// With an unclosed quote, the rest of a CSV file would be one row, and the rows in it lost.
[[noreturn]] void refuse_open_quote(const std::string& name, int64_t line);

// Parses records into rows. A header (CSV) is passed first.
class RecordParser {
 public:
  RecordParser(RowFormat format, std::string name, size_t max_row_bytes)
      : format_(format), name_(std::move(name)), max_row_bytes_(max_row_bytes) {}

  bool wants_header() const { return format_ == RowFormat::kCsv || format_ == RowFormat::kTsv; }
  void set_header(std::string_view record);
  const std::vector<std::string>& header() const { return header_; }

  // `line` returns the number of the record's first line, only for messages. UserError.
  void parse(std::string_view record, const std::function<int64_t()>& line, Row& out) const;

 private:
  void check_separator(const std::string& header) const;
  void refuse_json_array(int64_t line) const;
  void parse_json_line(const std::string& text, const std::function<int64_t()>& line,
                       Row& out) const;
  void parse_csv(std::string_view text, const std::function<int64_t()>& line, Row& out) const;

  RowFormat format_;
  std::string name_;
  size_t max_row_bytes_;
  std::vector<std::string> header_;
};

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

}  // namespace weft
