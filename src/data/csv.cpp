// data/csv.cpp: one pass over a record.
#include "data/csv.h"

#include <algorithm>

namespace weft {
namespace {

// The position after the quoted field that begins at text[at]; npos: unclosed.
size_t quoted_end(std::string_view text, size_t at) {
  for (++at;; at += 2) {
    at = text.find('"', at);
    if (at == std::string_view::npos) return at;
    if (at + 1 >= text.size() || text[at + 1] != '"') return at + 1;
  }
}

}  // namespace

CsvEnd csv_record_end(std::string_view text, size_t at, char separator) {
  const char stops[] = {separator, '\n', 0};
  while (at < text.size()) {
    if (text[at] == '"') {
      const size_t end = quoted_end(text, at);
      if (end == std::string_view::npos) return {text.size(), false, at};
      at = end;
    }
    at = text.find_first_of(stops, at);
    if (at == std::string_view::npos) break;
    if (text[at++] == '\n') return {at, true};
  }
  return {text.size(), false};
}

std::string csv_fields(std::string_view record, char separator, std::vector<std::string>& fields) {
  size_t used = 0, at = 0;
  while (true) {
    if (fields.size() <= used) fields.emplace_back();
    std::string& field = fields[used++];
    field.clear();
    if (at < record.size() && record[at] == '"') {
      const size_t end = quoted_end(record, at);
      if (end == std::string_view::npos) return "a quote that is not closed";
      for (size_t i = at + 1; i + 1 < end; ++i) {
        field.push_back(record[i]);
        if (record[i] == '"') ++i;
      }
      at = end;
      if (at < record.size() && record[at] != separator) return "text after a closing quote";
    } else {
      const size_t end = std::min(record.find(separator, at), record.size());
      field.assign(record.substr(at, end - at));
      at = end;
    }
    if (at >= record.size()) break;
    ++at;
  }
  fields.resize(used);
  return "";
}

}  // namespace weft
