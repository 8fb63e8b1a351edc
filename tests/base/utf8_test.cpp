// tests/base/utf8_test.cpp: well-formed and broken sequences, and their repair.
#include "base/utf8.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

std::string repaired(std::string text) {
  repair_utf8(text);
  return text;
}

TEST(Utf8, EveryCharacterRoundTrips) {
  for (uint32_t code = 0; code < 0x110000; code++) {
    if (code >= 0xD800 && code < 0xE000) continue;
    std::string text;
    append_utf8(text, code);
    const Utf8Char c = utf8_at(text, 0);
    ASSERT_TRUE(c.valid && c.code == code && c.length == text.size()) << code;
    ASSERT_FALSE(repair_utf8(text));
    for (size_t cut = 1; cut < text.size(); cut++)
      ASSERT_EQ(utf8_incomplete_tail(std::string_view(text).substr(0, cut)), cut) << code;
    ASSERT_EQ(utf8_incomplete_tail(text), 0u);
  }
}

// The examples of the Unicode standard, 3.9, tables 3-8 to 3-11.
TEST(Utf8, RepairsMaximalSubparts) {
  const std::string r = "\xEF\xBF\xBD";
  EXPECT_EQ(repaired("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"), r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(repaired("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"), r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(repaired("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42"),
            r + r + r + r + r + "A" + r + r + "B");
  EXPECT_EQ(repaired("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), r + r + r + r + "A");
  EXPECT_EQ(repaired("ab\xC3"), "ab" + r);
  std::string good = "h\xC3\xA9";
  EXPECT_FALSE(repair_utf8(good));
  std::string bad = "h\xC3";
  EXPECT_TRUE(repair_utf8(bad));
}

TEST(Utf8, TailIsOnlyWhatMayStillBecomeACharacter) {
  EXPECT_EQ(utf8_incomplete_tail(""), 0u);
  EXPECT_EQ(utf8_incomplete_tail("\x80\x80"), 0u);
  EXPECT_EQ(utf8_incomplete_tail("\xE0\x80"), 0u);  // overlong: bad already
  EXPECT_EQ(utf8_incomplete_tail("\xE0\xA0"), 2u);
  EXPECT_EQ(utf8_incomplete_tail("\xF4\x90"), 0u);
  EXPECT_EQ(utf8_incomplete_tail("\xFF"), 0u);
}

}  // namespace
}  // namespace weft
