// text/byte_alphabet.cpp: symbols to bytes and back.
#include "text/byte_alphabet.h"

#include "base/utf8.h"

namespace weft {

std::string byte_symbol(unsigned char byte) {
  std::string out;
  append_utf8(out, kByteAlphabet.symbol[byte]);
  return out;
}

bool append_bytes_of_symbols(std::string& bytes, std::string_view symbols) {
  for (size_t at = 0; at < symbols.size();) {
    const auto lead = static_cast<unsigned char>(symbols[at]);
    uint32_t code = lead;
    if (lead >= 0x80) {  // the alphabet ends below U+0800: two bytes at most
      if (lead < 0xC2 || lead > 0xDF || at + 1 == symbols.size()) return false;
      const auto second = static_cast<unsigned char>(symbols[++at]);
      if ((second & 0xC0) != 0x80) return false;
      code = (lead & 0x1Fu) << 6 | (second & 0x3Fu);
    }
    at++;
    if (code >= kByteSymbolEnd || kByteAlphabet.byte[code] < 0) return false;
    bytes.push_back(static_cast<char>(kByteAlphabet.byte[code]));
  }
  return true;
}

std::optional<std::string> bytes_of_symbols(std::string_view symbols) {
  std::string bytes;
  bytes.reserve(symbols.size());
  if (!append_bytes_of_symbols(bytes, symbols)) return std::nullopt;
  return bytes;
}

}  // namespace weft
