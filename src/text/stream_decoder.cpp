// text/stream_decoder.cpp: holds back the beginning of a character until its end has come.
#include "text/stream_decoder.h"

#include <utility>

#include "text/utf8.h"

namespace weft {

std::string StreamDecoder::push(int32_t id) {
  if (skip_special_ && tokenizer_.is_special(id)) return "";
  held_ += tokenizer_.token_bytes(id);
  const size_t whole = held_.size() - utf8_incomplete_tail(held_);
  std::string out = held_.substr(0, whole);
  held_.erase(0, whole);
  repair_utf8(out);
  return out;
}

std::string StreamDecoder::finish() {
  std::string out = std::exchange(held_, "");
  repair_utf8(out);
  return out;
}

}  // namespace weft
