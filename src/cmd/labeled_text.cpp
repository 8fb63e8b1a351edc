// cmd/labeled_text.cpp: decodes all tokens in one pass, with brackets around labels.
#include "cmd/labeled_text.h"

#include "text/stream_decoder.h"

namespace weft {

std::string labeled_text(const Tokenizer& tokenizer, std::span<const int32_t> ids,
                         const std::function<bool(size_t)>& is_label) {
  constexpr const char *kBegin = "\u27E6", *kEnd = "\u27E7";  // white square brackets
  StreamDecoder decoder(tokenizer, /*skip_special=*/false);
  std::string out;
  bool is_open = false;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (is_label(i) != is_open) {
      out += is_open ? kEnd : kBegin;
      is_open = !is_open;
    }
    out += decoder.push(ids[i]);
  }
  out += decoder.finish();
  if (is_open) out += kEnd;
  return out;
}

}  // namespace weft
