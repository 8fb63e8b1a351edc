// text/stream_decoder.cpp: holds back an incomplete character until the rest arrives.
#include "text/stream_decoder.h"

#include <utility>

#include "base/utf8.h"

namespace weft {

std::string decode_bytes_next(Tokenizer::Decoding& state, std::string_view bytes) {
  state.held += bytes;
  const size_t whole = state.held.size() - utf8_incomplete_tail(state.held);
  std::string out = state.held.substr(0, whole);
  state.held.erase(0, whole);
  repair_utf8(out);
  return out;
}

std::string decode_bytes_end(Tokenizer::Decoding& state) {
  std::string out = std::exchange(state.held, "");
  repair_utf8(out);
  return out;
}

std::string StreamDecoder::push(int32_t id) {
  if (skip_special_ && tokenizer_.is_special(id)) return "";
  return tokenizer_.decode_next(state_, id);
}

std::string StreamDecoder::finish() {
  std::string out = tokenizer_.decode_end(state_);
  state_ = {};
  return out;
}

}  // namespace weft
