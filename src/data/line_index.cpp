// data/line_index.cpp: lines are found by memchr, several bytes a cycle.
#include "data/line_index.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace weft {
namespace {

constexpr uint64_t kMarkBytes = 16384;
constexpr int64_t kMarkLines = 64;

// The offset after the line that begins at `at`, its line end included.
uint64_t after_line(std::string_view text, uint64_t at) {
  const void* end = std::memchr(text.data() + at, '\n', text.size() - at);
  if (!end) return text.size();
  return static_cast<uint64_t>(static_cast<const char*>(end) - text.data()) + 1;
}

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

}  // namespace

LineIndex::LineIndex(std::string_view text, bool skip_blank)
    : text_(text), skip_blank_(skip_blank) {
  for (uint64_t at = 0; at < text.size();) {
    const uint64_t next = after_line(text, at);
    if (!skip_blank || !is_blank(text.substr(at, next - at))) {
      if (marks_.empty() || at - marks_.back().offset >= kMarkBytes ||
          num_lines_ - marks_.back().line >= kMarkLines) {
        marks_.push_back({num_lines_, at});
      }
      ++num_lines_;
    }
    at = next;
  }
  marks_.shrink_to_fit();
}

uint64_t LineIndex::find(int64_t i) const {
  ensure(i >= 0 && i < num_lines_, "a line of the text");
  const auto after = std::upper_bound(marks_.begin(), marks_.end(), i,
                                      [](int64_t line, const Mark& m) { return line < m.line; });
  const Mark& mark = *std::prev(after);
  int64_t line = mark.line;
  uint64_t at = mark.offset;
  while (true) {
    const uint64_t next = after_line(text_, at);
    if (!skip_blank_ || !is_blank(text_.substr(at, next - at))) {
      if (line == i) return at;
      ++line;
    }
    at = next;
  }
}

std::string_view LineIndex::line(int64_t i) const {
  const uint64_t at = find(i);
  std::string_view line = text_.substr(at, after_line(text_, at) - at);
  if (line.ends_with('\n')) {
    line.remove_suffix(1);
    if (line.ends_with('\r')) line.remove_suffix(1);
  }
  return line;
}

int64_t LineIndex::line_number(int64_t i) const {
  const uint64_t at = find(i);
  return 1 + std::count(text_.begin(), text_.begin() + static_cast<int64_t>(at), '\n');
}

}  // namespace weft
