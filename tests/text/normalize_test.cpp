// tests/text/normalize_test.cpp: form C of composed, decomposed and reordered text.
#include "text/normalize.h"

#include <gtest/gtest.h>

#include "base/utf8.h"
#include "text/unicode_tables.h"

namespace weft {
namespace {

std::string utf8(std::initializer_list<uint32_t> codes) {
  std::string out;
  for (const uint32_t code : codes) append_utf8(out, code);
  return out;
}

std::string nfc(const std::string& text) { return to_nfc(text).value_or(text); }

TEST(Normalize, ComposesAndSorts) {
  EXPECT_EQ(nfc(utf8({'e', 0x301})), utf8({0xE9}));
  EXPECT_EQ(nfc(utf8({'a', 0x301, 0x323})), utf8({0x1EA1, 0x301}));  // dot below comes first
  EXPECT_EQ(nfc(utf8({0x212B, 0x2126})), utf8({0xC5, 0x3A9}));       // one to one
  EXPECT_EQ(nfc(utf8({0x1100, 0x1161, 0x11A8, 'x'})), utf8({0xAC01, 'x'}));
  EXPECT_EQ(nfc(utf8({0xAC00, 0x11A8})), utf8({0xAC01}));
  EXPECT_EQ(nfc(utf8({0x1D15E})), utf8({0x1D157, 0x1D165}));  // excluded from composition
  EXPECT_EQ(nfc(utf8({0x301, 'e'})), utf8({0x301, 'e'}));     // nothing before it to join
  EXPECT_EQ(nfc(utf8({'e', 0x334, 0x301})), utf8({0xE9, 0x334}));
  EXPECT_EQ(nfc(utf8({'e', 0x301, 0x301})), utf8({0xE9, 0x301}));
}

TEST(Normalize, ReportsWhenNothingChanges) {
  EXPECT_EQ(to_nfc(""), std::nullopt);
  EXPECT_EQ(to_nfc("plain text, and a long one: more than one block of sixty-four bytes is in it"),
            std::nullopt);
  EXPECT_EQ(to_nfc(utf8({0xE9, 0x4E2D, 0x1F999, 0x3042})), std::nullopt);
}

TEST(Normalize, LeavesBadBytesAlone) {
  EXPECT_EQ(nfc("\xFF"
                "e\xCC\x81\xC3"),
            "\xFF\xC3\xA9\xC3");
  EXPECT_EQ(nfc("\xFF\xCC\x81\xFF"), "\xFF\xCC\x81\xFF");
}

// Long text is scanned in blocks of bytes, and only blocks with a mark are composed.
TEST(Normalize, AMarkIsFoundAnywhere) {
  for (size_t at = 0; at < 200; ++at) {
    const std::string before(at, 'a'), after(200 - at, 'b');
    EXPECT_EQ(to_nfc(before + utf8({'e', 0x300}) + after), before + utf8({0xE8}) + after) << at;
    EXPECT_EQ(to_nfc(before + utf8({0x2FF}) + after), std::nullopt) << at;
  }
  EXPECT_EQ(nfc(utf8({'e', 0x301, 'x', 0x323, 'y', 'e', 0x301})),
            utf8({0xE9, 'x', 0x323, 'y', 0xE9}));
}

// Normalizing twice is normalizing once, for every character next to a mark.
TEST(Normalize, IsIdempotent) {
  for (uint32_t code = 0xA0; code < 0x30000; code++) {
    if (code >= 0xD800 && code < 0xE000) continue;
    const std::string once = nfc(utf8({'q', 0x323, code, 0x301, code}));
    ASSERT_EQ(nfc(once), once) << code;
  }
}

// Text that takes the fast path contains nothing that composing would change.
TEST(Normalize, NothingBelow300IsUnstable) {
  for (uint32_t code = 0; code < 0x300; code++) EXPECT_FALSE(unicode_flags(code) & kUnstable);
  EXPECT_TRUE(unicode_flags(0x300) & kUnstable);
}

TEST(Unicode, ClassesOfSomeCharacters) {
  EXPECT_EQ(unicode_flags('a') & (kLetter | kNumber | kSpace), kLetter);
  EXPECT_EQ(unicode_flags(0xBD) & (kLetter | kNumber | kSpace), kNumber);
  EXPECT_EQ(unicode_flags(0x3000) & (kLetter | kNumber | kSpace), kSpace);
  EXPECT_EQ(unicode_flags(0x180E) & (kLetter | kNumber | kSpace), 0);  // no blank since Unicode 6.3
  EXPECT_TRUE(unicode_flags(0x105C0) & kLetter);                       // new in Unicode 16
  EXPECT_FALSE(unicode_flags(0x88F) & kLetter);                        // new in Unicode 17
  EXPECT_TRUE(unicode_flags('_') & kWord);
  EXPECT_EQ(unicode_flags(0x110000), 0);
}

}  // namespace
}  // namespace weft
