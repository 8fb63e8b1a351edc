// generate/stop_strings.cpp: searches in text that arrives in pieces.
#include "generate/stop_strings.h"

#include <algorithm>

#include "generate/stop_ids.h"

namespace weft {
namespace {

// The longest end of the text that a stop string begins with, in bytes.
size_t possible_begin(const std::string& text, const std::vector<std::string>& stops) {
  size_t longest = 0;
  for (const std::string& stop : stops) {
    for (size_t n = std::min(text.size(), stop.size() - 1); n > longest; --n) {
      if (text.compare(text.size() - n, n, stop, 0, n) == 0) longest = n;
    }
  }
  return longest;
}

// Where the stop string begins that is complete first; npos: there is none.
size_t find_stop(const std::string& text, const std::vector<std::string>& stops) {
  size_t begin = std::string::npos, end = std::string::npos;
  for (const std::string& stop : stops) {
    const size_t at = text.find(stop);
    if (at == std::string::npos || at + stop.size() > end) continue;
    begin = at + stop.size() < end ? at : std::min(begin, at);
    end = at + stop.size();
  }
  return begin;
}

}  // namespace

std::string StopFilter::push(const std::string& text) {
  if (is_stopped_) return "";
  held_ += text;
  const size_t first = find_stop(held_, stops_);
  is_stopped_ = first != std::string::npos;
  const size_t known = is_stopped_ ? first : held_.size() - possible_begin(held_, stops_);
  std::string out = held_.substr(0, known);
  held_.erase(0, is_stopped_ ? held_.size() : known);
  return out;
}

std::string StopFilter::finish() {
  std::string out;
  out.swap(held_);
  return out;
}

std::string before_stop(const std::string& text, const std::vector<std::string>& stops) {
  StopFilter filter(stops);
  std::string out = filter.push(text);
  return out + filter.finish();
}

StopStrings::StopStrings(const Tokenizer& tokenizer, const std::vector<int32_t>& stop_ids,
                         const std::vector<std::string>& stops, size_t num_prompts)
    : tokenizer_(tokenizer),
      stop_ids_(stop_ids),
      rows_(num_prompts, {StreamDecoder(tokenizer, true), StopFilter(stops)}) {}

bool StopStrings::ends(size_t prompt, int32_t id) {
  if (!has_text(id, tokenizer_, stop_ids_)) return false;
  Row& row = rows_[prompt];
  row.filter.push(row.decoder.push(id));
  return row.filter.is_stopped();
}

}  // namespace weft
