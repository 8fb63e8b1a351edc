// tests/base/printable_test.cpp: what a terminal would interpret is escaped, all else stays.
#include "base/printable.h"

#include <gtest/gtest.h>

#include "base/json.h"

namespace weft {
namespace {

TEST(Printable, PlainTextIsUnchanged) {
  const std::string text = "row 1\n\ttab, \xC3\xA9 \xE6\x97\xA5 \xF0\x9F\x98\x80 \xC2\xA0 ~";
  EXPECT_EQ(printable(text), text);
  EXPECT_EQ(printable(""), "");
}

TEST(Printable, ControlCharactersAreEscaped) {
  EXPECT_EQ(printable("\x1b[31mred\r\x07"), "\\x1b[31mred\\x0d\\x07");
  EXPECT_EQ(printable(std::string("a\0b\x7f", 4)), "a\\x00b\\x7f");
  // U+009B is CSI to some terminals.
  EXPECT_EQ(printable("\xC2\x9B"
                      "2J"),
            "\\xc2\\x9b2J");
}

TEST(Printable, InvalidUtf8IsEscaped) {
  EXPECT_EQ(printable("a\xff"
                      "b"),
            "a\\xffb");
  EXPECT_EQ(printable("\xE6\x97"), "\\xe6\\x97");  // cut
  EXPECT_EQ(printable("\xC0\x9B"), "\\xc0\\x9b");  // overlong
  EXPECT_EQ(printable("\x9B"
                      "2J"),
            "\\x9b2J");  // CSI as one byte
}

TEST(Printable, ALineStaysOneLine) {
  EXPECT_EQ(printable_line("two\nlines\tand \x1b[m"), "two\\x0alines\\x09and \\x1b[m");
  EXPECT_EQ(printable_line("plain \xC3\xA9"), "plain \xC3\xA9");
}

// Its own continuation lines are indented; others came from a name.
TEST(Printable, AMessageKeepsItsOwnLines) {
  EXPECT_EQ(printable_message("runs/a:\n    lr: 1 -> 2\n  hint: go"),
            "runs/a:\n    lr: 1 -> 2\n  hint: go");
  EXPECT_EQ(printable_message("no file a\nb\n"), "no file a\\x0ab\\x0a");
  EXPECT_EQ(printable_message("\x07 \t"), "\\x07 \\x09");
}

TEST(Printable, JsonKeepsItsValue) {
  const Json value(std::string("a\x1b \xC2\x9B \x7f \xC3\xA9\n"));
  const std::string text = printable_json(value.dump());
  EXPECT_EQ(text, "\"a\\u001b \\u009b \\u007f \xC3\xA9\\n\"");
  EXPECT_EQ(parse_json(text, "text"), value);
}

}  // namespace
}  // namespace weft
