// text/stream_decoder.h: ids come one at a time, text goes out in whole characters.
#pragma once

#include <string>

#include "text/tokenizer.h"

namespace weft {

// What push() and finish() return, put together, equals decode() of all the ids.
class StreamDecoder {
 public:
  StreamDecoder(const Tokenizer& tokenizer, bool skip_special)
      : tokenizer_(tokenizer), skip_special_(skip_special) {}

  std::string push(int32_t id);  // the characters that are whole now; may be empty
  std::string finish();          // what is left; half a character becomes U+FFFD

 private:
  const Tokenizer& tokenizer_;
  bool skip_special_;
  Tokenizer::Decoding state_;
};

}  // namespace weft
