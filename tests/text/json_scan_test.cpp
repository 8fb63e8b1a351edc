// tests/text/json_scan_test.cpp: the cursor reads what parse_json reads, and refuses the rest.
#include "text/json_scan.h"

#include <gtest/gtest.h>

#include <string>

#include "base/error.h"

namespace weft {
namespace {

int64_t integer_of(std::string_view text) {
  JsonScan scan(text, "f");
  const int64_t value = scan.integer();
  scan.expect_end();
  return value;
}

std::string string_of(std::string_view text) {
  JsonScan scan(text, "f");
  return std::string(scan.string());
}

TEST(JsonScan, IntegersOfEighteenDigits) {
  EXPECT_EQ(integer_of("0"), 0);
  EXPECT_EQ(integer_of(" -17 "), -17);
  EXPECT_EQ(integer_of("999999999999999999"), 999999999999999999);
  EXPECT_THROW(integer_of("1000000000000000000"), UserError);  // one of 19 may not fit
  for (const char* bad : {"", "-", "x", "1.5", "1e3", "1 2"}) {
    EXPECT_THROW(integer_of(bad), UserError) << bad;
  }
}

TEST(JsonScan, StringsWithEscapes) {
  EXPECT_EQ(string_of(R"("ab")"), "ab");
  EXPECT_EQ(string_of(R"("a\n\t\"\\\/\u00e9")"), "a\n\t\"\\/\xC3\xA9");
  EXPECT_EQ(string_of(R"("\ud83e\udd99")"), "\xF0\x9F\xA6\x99");
  for (const char* bad : {R"("a)", R"("\x")", R"("\u12")", R"("\ud83e")", R"("\ud83eab")",
                          R"("\udd99")", R"("\ud83e\u0041")", "a"}) {
    EXPECT_THROW(string_of(bad), UserError) << bad;
  }
}

TEST(JsonScan, RawValuesEndInTheRightPlace) {
  for (const std::string value :
       {R"("a]")", "12", "-1.5e3", "true", "null", R"({"a": [1, "}"]})", "[[], {}]"}) {
    const std::string text = "[" + value + ", 7]";
    JsonScan scan(text, "f");
    scan.expect('[');
    EXPECT_EQ(scan.raw_value(), value);
    scan.expect(',');
    EXPECT_EQ(scan.integer(), 7);
    scan.expect(']');
    EXPECT_NO_THROW(scan.expect_end());
  }
}

}  // namespace
}  // namespace weft
