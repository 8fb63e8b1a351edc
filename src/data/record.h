// data/record.h: where the rows of a text begin and end, by format, and what is in one.
//
// A *record* is the text of one row: a line, or what CSV's quotes hold together.
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
  bool is_whole;                               // false: the text ends before it
  size_t open_quote = std::string_view::npos;  // CSV: where a quote opens that the text leaves open
};
RecordEnd record_end(RowFormat format, std::string_view text, size_t at);
// Lines of white space alone are no records of JSON lines and CSV.
bool is_counted(RowFormat format, std::string_view record);
std::string_view without_line_end(std::string_view record);
// CSV whose last quote is never closed would be one row up to its end, and the rows in it lost.
[[noreturn]] void refuse_open_quote(const std::string& name, int64_t line);

// Makes rows of records. One that reads a header (CSV) is given it first.
class RecordParser {
 public:
  RecordParser(RowFormat format, std::string name) : format_(format), name_(std::move(name)) {}

  bool wants_header() const { return format_ == RowFormat::kCsv || format_ == RowFormat::kTsv; }
  void set_header(std::string_view record);
  const std::vector<std::string>& header() const { return header_; }

  // `line` gives the number of the record's first line, asked for messages alone. UserError.
  void parse(std::string_view record, const std::function<int64_t()>& line, Row& out) const;

 private:
  void check_separator(const std::string& header) const;
  void parse_json_line(const std::string& text, const std::function<int64_t()>& line,
                       Row& out) const;
  void parse_csv(std::string_view text, const std::function<int64_t()>& line, Row& out) const;

  RowFormat format_;
  std::string name_;
  std::vector<std::string> header_;
};

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

}  // namespace weft
