// data/record.cpp: text, JSON lines and CSV, a record at a time.
#include "data/record.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/json.h"
#include "data/csv.h"
#include "text/tokenizer.h"

namespace weft {
namespace {

char separator_of(RowFormat format) { return format == RowFormat::kTsv ? '\t' : ','; }
bool is_csv(RowFormat format) { return format == RowFormat::kCsv || format == RowFormat::kTsv; }

std::string number_text(double v) {
  std::string text = fmt::format("{}", v);
  if (text.find_first_not_of("-0123456789") == std::string::npos) text += ".0";
  return text;
}

void put_json(Row::Column& column, const Json& value) {
  column.kind = Row::Kind::kText;
  if (value.is_string()) {
    column.text = value.as_string();
  } else if (value.is_null()) {
    column.text.clear();
    column.kind = Row::Kind::kNull;
  } else if (value.is_bool()) {
    column.text = value.as_bool() ? "true" : "false";
  } else if (value.is_int()) {
    column.text = std::to_string(value.as_int());
  } else if (value.is_large()) {
    column.text = value.large_digits();
  } else if (value.is_number()) {
    column.text = number_text(value.as_number());
  } else {
    column.text = value.dump();
    column.kind = Row::Kind::kNested;
  }
}

}  // namespace

RecordEnd record_end(RowFormat format, std::string_view text, size_t at) {
  if (is_csv(format)) {
    const CsvEnd end = csv_record_end(text, at, separator_of(format));
    return {end.at, end.is_whole, end.open_quote};
  }
  const size_t end = text.find('\n', at);
  if (end == std::string_view::npos) return {text.size(), false};
  return {end + 1, true};
}

bool is_counted(RowFormat format, std::string_view record) {
  return format == RowFormat::kText ||
         record.find_first_not_of(" \t\r\n") != std::string_view::npos;
}

bool has_blank_fields(RowFormat format, std::string_view record) {
  return format == RowFormat::kTsv && record.find('\t') != std::string_view::npos;
}

bool ends_lines_with_cr(std::string_view text) {
  return text.find('\n') == std::string_view::npos && text.find('\r') != std::string_view::npos;
}

void refuse_cr_lines(const std::string& name) {
  throw UserError(fmt::format("{}: lines end with carriage returns only, wanted line feeds", name),
                  fmt::format("convert the file: tr '\\r' '\\n' < {} > FILE", name));
}

std::string_view without_line_end(std::string_view record) {
  if (record.ends_with('\n')) {
    record.remove_suffix(1);
    if (record.ends_with('\r')) record.remove_suffix(1);
  }
  return record;
}

void refuse_open_quote(const std::string& name, int64_t line) {
  throw UserError(
      fmt::format("{}:{}: an opening quote is never closed: everything after it would be one field",
                  name, line),
      "close it; a literal quote is doubled inside a quoted field");
}

// It may be a single column, or another separator.
void RecordParser::check_separator(const std::string& header) const {
  const char* wanted = separator_of(format_) == ',' ? "','" : "tabs";
  if (header.find(';') != std::string::npos) {
    throw UserError(fmt::format("{}:1: the columns ({}) are separated by ';', wanted {}", name_,
                                header, wanted),
                    "rewrite the file with commas (.csv), or with tabs (.tsv)");
  }
  if (format_ == RowFormat::kTsv || header.find('\t') == std::string::npos) return;
  std::string shown = header;
  std::replace(shown.begin(), shown.end(), '\t', ' ');
  throw UserError(
      fmt::format("{}:1: the columns ({}) are separated by tabs, wanted {}", name_, shown, wanted),
      "name the file .tsv, or rewrite it with commas");
}

void RecordParser::set_header(std::string_view record) {
  const std::string bad = csv_fields(without_line_end(record), separator_of(format_), header_);
  require(bad.empty(), "{}:1: {} in the line of column names", name_, bad);
  for (std::string& name : header_) repair_utf8(name);
  if (header_.size() == 1) check_separator(header_[0]);
  std::set<std::string_view> seen;
  for (const std::string& name : header_)
    require(seen.insert(name).second, "{}:1: duplicate column '{}'", name_, name);
}

void RecordParser::parse(std::string_view record, const std::function<int64_t()>& line,
                         Row& out) const {
  if (record.size() > max_row_bytes_)
    refuse_long_row(fmt::format("{}:{}", name_, line()), max_row_bytes_);
  std::string text(without_line_end(record));
  out.repaired = repair_utf8(text);
  if (format_ == RowFormat::kText) {
    out.columns.resize(1);
    out.columns[0] = {"text", std::move(text), Row::Kind::kText};
  } else if (format_ == RowFormat::kJsonLines) {
    parse_json_line(text, line, out);
  } else {
    parse_csv(text, line, out);
  }
}

// Alpaca's files are an array of objects. In later lines, an array is an error of that row only.
void RecordParser::refuse_json_array(int64_t line) const {
  if (line != 1) return;
  throw UserError(fmt::format("{}: the file is a JSON array, wanted one object per line", name_),
                  fmt::format("convert the file: jq -c '.[]' {} > rows.jsonl", name_));
}

void RecordParser::parse_json_line(const std::string& text, const std::function<int64_t()>& line,
                                   Row& out) const {
  constexpr const char* kHint = "a JSON-lines file has one object per line";
  if (const size_t at = text.find_first_not_of(" \t\r"); at != std::string::npos && text[at] == '[')
    refuse_json_array(line());
  Json value;
  try {
    value = parse_json(text, name_);
  } catch (const UserError& e) {
    throw UserError(fmt::format("{}:{}: the line is not JSON ({})", name_, line(), e.what()),
                    kHint);
  }
  if (!value.is_object()) {
    throw UserError(fmt::format("{}:{}: wanted a JSON object, got {}", name_, line(), value.kind()),
                    kHint);
  }
  out.columns.resize(value.as_object().size());
  size_t used = 0;
  for (const auto& [name, v] : value.as_object()) {
    out.columns[used].name = name;
    put_json(out.columns[used++], v);
  }
}

void RecordParser::parse_csv(std::string_view text, const std::function<int64_t()>& line,
                             Row& out) const {
  thread_local std::vector<std::string> fields;
  const std::string bad = csv_fields(text, separator_of(format_), fields);
  if (!bad.empty()) throw UserError(fmt::format("{}:{}: {}", name_, line(), bad));
  if (fields.size() != header_.size()) {
    throw UserError(fmt::format("{}:{}: {} fields, but there are {} columns ({})", name_, line(),
                                fields.size(), header_.size(), fmt::join(header_, ", ")),
                    "a field that contains the separator or a line end must be in double quotes");
  }
  out.columns.resize(fields.size());
  for (size_t i = 0; i < fields.size(); ++i) {
    out.columns[i].name = header_[i];
    out.columns[i].text = fields[i];
    out.columns[i].kind = Row::Kind::kText;
  }
}

}  // namespace weft
