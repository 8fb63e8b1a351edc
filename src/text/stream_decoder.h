// text/stream_decoder.h: takes ids one at a time, emits text in whole characters.
#pragma once

#include <string>

#include "text/tokenizer.h"

namespace weft {

// The concatenated results of push() and finish() equal decode() of all the ids.
class StreamDecoder {
 public:
  StreamDecoder(const Tokenizer& tokenizer, bool skip_special)
      : tokenizer_(tokenizer), skip_special_(skip_special) {}

  std::string push(int32_t id);  // the characters completed by it; may be empty
  std::string finish();          // what is left; half a character becomes U+FFFD

 private:
  const Tokenizer& tokenizer_;
  bool skip_special_;
  Tokenizer::Decoding state_;
};

}  // namespace weft
