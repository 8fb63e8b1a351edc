// text/unicode_tables.h: what tools/make_unicode.py extracts about every character.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weft {

enum UnicodeFlag : uint8_t {
  kLetter = 1,     // \p{L}
  kNumber = 2,     // \p{N}
  kSpace = 4,      // \s
  kWord = 8,       // \w
  kUnstable = 16,  // text without such a character is in NFC
};

enum ShapeFlag : uint8_t {
  kPunctuation = 1,  // of the Punctuation pre-tokenizer
  kExtends = 2,      // belongs to the user-perceived character before it
  kControl = 4,      // is a cluster by itself
  kPrepend = 8,      // belongs to the one after it
};

// Flags in two stages: kUnicodeBlock[code / 128] says which 128 flags of kUnicodeFlags hold.
extern const uint8_t kUnicodeBlock[0x110000 / 128];
extern const uint8_t kUnicodeFlags[];
extern const uint8_t kShapeBlock[0x110000 / 128];
extern const uint8_t kShapeFlags[];

struct Decomposition {
  uint32_t code, first, second;  // one level; second 0: one character becomes one other
};
struct Composition {
  uint32_t first, second, code;
};
struct CombiningRange {
  uint32_t first, last;
  uint8_t combining_class;
};

// Sorted by code; by (first, second); by first. Hangul is not in them: it is arithmetic.
extern const Decomposition kDecompositions[];
extern const size_t kNumDecompositions;
extern const Composition kCompositions[];
extern const size_t kNumCompositions;
extern const CombiningRange kCombiningRanges[];
extern const size_t kNumCombiningRanges;

// Characters that become several others: kXCodes[begin], length of them. Sorted by code.
struct Mapping {
  uint32_t code;
  uint16_t begin;
  uint8_t length;
};
extern const Mapping kCompatible[];  // compatibility decompositions, to their end
extern const size_t kNumCompatible;
extern const uint32_t kCompatibleCodes[];
extern const Mapping kLowered[];  // lower case, beyond ASCII
extern const size_t kNumLowered;
extern const uint32_t kLoweredCodes[];

inline uint8_t shape_flags(uint32_t code) {
  return code < 0x110000 ? kShapeFlags[kShapeBlock[code / 128] * 128 + code % 128] : uint8_t{0};
}

inline uint8_t unicode_flags(uint32_t code) {
  return code < 0x110000 ? kUnicodeFlags[kUnicodeBlock[code / 128] * 128 + code % 128] : uint8_t{0};
}

}  // namespace weft
