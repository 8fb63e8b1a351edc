// text/byte_alphabet.h: the 256 visible characters that stand for bytes in byte-level vocabularies.
//
// GPT-2's rule: the bytes 21-7E, A1-AC, AE-FF stand for the character of the same number; the
// other 68 take U+0100, U+0101, ... in the order of their values.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace weft {

constexpr int kByteSymbolEnd = 0x144;  // one more than the largest character of the alphabet

struct ByteAlphabet {
  std::array<uint16_t, 256> symbol;          // byte to character
  std::array<int16_t, kByteSymbolEnd> byte;  // character to byte; -1: not in the alphabet
};

constexpr ByteAlphabet make_byte_alphabet() {
  ByteAlphabet alphabet{};
  for (auto& byte : alphabet.byte) byte = -1;
  uint16_t next = 0x100;
  for (uint16_t b = 0; b < 256; b++) {
    const bool visible = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b != 0xAD);
    alphabet.symbol[b] = visible ? b : next++;
    alphabet.byte[alphabet.symbol[b]] = static_cast<int16_t>(b);
  }
  return alphabet;
}

inline constexpr ByteAlphabet kByteAlphabet = make_byte_alphabet();

std::string byte_symbol(unsigned char byte);  // UTF-8

// The bytes that a token's text stands for; none where a character is not in the alphabet. The
// second form appends them; where it returns false, `bytes` is unspecified.
std::optional<std::string> bytes_of_symbols(std::string_view symbols);
bool append_bytes_of_symbols(std::string& bytes, std::string_view symbols);

}  // namespace weft
