// data/csv.h: records and fields of comma-separated text (RFC 4180).
//
// A field in quotes may hold separators, line ends and doubled quotes; a quote inside a field that
// does not begin with one is an ordinary character, as in Python's csv.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

// The end of the record that begins at text[at], its line end included. `is_whole` is false where
// the text ends before the record does: inside quotes, or without a line end.
struct CsvEnd {
  size_t at;
  bool is_whole;
  size_t open_quote = std::string_view::npos;  // position of the unclosed quote
};
CsvEnd csv_record_end(std::string_view text, size_t at, char separator);

// The fields of one record (without its line end). Returns what is wrong with it; empty: valid.
std::string csv_fields(std::string_view record, char separator, std::vector<std::string>& fields);

}  // namespace weft
