// text/byte_alphabet.cpp: symbols to bytes and back.
#include "text/byte_alphabet.h"

#include "text/utf8.h"

namespace weft {

std::string byte_symbol(unsigned char byte) {
  std::string out;
  append_utf8(out, kByteAlphabet.symbol[byte]);
  return out;
}

std::optional<std::string> bytes_of_symbols(std::string_view symbols) {
  std::string bytes;
  bytes.reserve(symbols.size());
  for (size_t at = 0; at < symbols.size();) {
    const Utf8Char c = utf8_at(symbols, at);
    if (!c.valid || c.code >= kByteSymbolEnd || kByteAlphabet.byte[c.code] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(kByteAlphabet.byte[c.code]));
    at += c.length;
  }
  return bytes;
}

}  // namespace weft
