// tests/base/json_test.cpp: values in and out, kinds, limits, and text that is not JSON.
#include "base/json.h"

#include <gtest/gtest.h>

#include <limits>

#include "base/error.h"

namespace weft {
namespace {

TEST(Json, ReadsEveryKind) {
  const Json v = parse_json(
      R"({"n": null, "b": true, "i": -5, "d": 1.5e3, "s": "\u00e9\n", "a": [1, []], "o": {}})",
      "t");
  EXPECT_TRUE(v.at("n").is_null());
  EXPECT_TRUE(v.at("b").as_bool());
  EXPECT_EQ(v.at("i").as_int(), -5);
  EXPECT_EQ(v.at("d").as_number(), 1500.0);
  EXPECT_EQ(v.at("d").as_int(), 1500);  // a double without a fraction is accepted
  EXPECT_EQ(v.at("s").as_string(), "é\n");
  EXPECT_EQ(v.at("a").as_array().size(), 2u);
  EXPECT_TRUE(v.at("o").as_object().empty());
  EXPECT_EQ(v.find("x"), nullptr);
  EXPECT_THROW(static_cast<void>(v.at("x")), UserError);
}

TEST(Json, ErrorsNameBothKinds) {
  try {
    static_cast<void>(Json("x").as_int());
    FAIL();
  } catch (const UserError& e) {
    EXPECT_STREQ(e.what(), "wanted int, got string");
  }
  EXPECT_THROW(static_cast<void>(Json(1.5).as_int()), UserError);
  EXPECT_THROW(static_cast<void>(Json(true).as_number()), UserError);
  EXPECT_THROW(static_cast<void>(Json().as_array()), UserError);
}

TEST(Json, LastDuplicateKeyWins) {
  EXPECT_EQ(parse_json(R"({"a": 1, "a": 2})", "t").at("a").as_int(), 2);
}

TEST(Json, EqualTextMeansEqualBits) {
  for (const double d : {0.1, 1.0 / 3.0, 5e-324, 1.7976931348623157e308, -0.0, 123456789.125}) {
    const Json back = parse_json(Json(d).dump(), "t");
    EXPECT_EQ(back.as_number(), d);
    EXPECT_EQ(back.dump(), Json(d).dump());
  }
  EXPECT_EQ(Json(std::numeric_limits<double>::infinity()).dump(), "null");
  EXPECT_EQ(Json(std::numeric_limits<double>::quiet_NaN()).dump(), "null");
  EXPECT_EQ(Json(INT64_MAX).dump(), "9223372036854775807");
}

// Beyond int64: passed through unchanged.
TEST(Json, LargeIntegersKeepTheirDigits) {
  for (const char* text :
       {"9223372036854775808", "12345678901234567890", "18446744073709551615",
        "18446744073709551616", "-9223372036854775809", "123456789012345678901234567890"}) {
    const Json value = parse_json(text, "t");
    EXPECT_EQ(value.dump(), text);
    EXPECT_EQ(value.dump(2, Json::Digits::kShortest), text);
    EXPECT_EQ(parse_json(value.dump(), "t"), value);
    EXPECT_FALSE(value.is_int());
    EXPECT_TRUE(value.is_number());
    EXPECT_STREQ(value.kind(), "int");
    EXPECT_EQ(value.as_number(), std::stod(text));
    EXPECT_THROW(static_cast<void>(value.as_int()), UserError);
  }
  for (const char* text : {"9223372036854775807", "-9223372036854775808"}) {
    EXPECT_TRUE(parse_json(text, "t").is_int()) << text;
    EXPECT_EQ(std::to_string(parse_json(text, "t").as_int()), text);
  }
  EXPECT_EQ(parse_json("1e19", "t").dump(-1, Json::Digits::kShortest), "1e+19");  // no integer
}

// As Python writes them.
TEST(Json, TheShortestTextReadsBackToTheSameBits) {
  const std::pair<double, const char*> shortest[] = {{0.3, "0.3"},
                                                     {1e-6, "1e-06"},
                                                     {1e-5, "1e-05"},
                                                     {1e6, "1000000.0"},
                                                     {1.0, "1.0"},
                                                     {-0.0, "-0.0"},
                                                     {0.0001, "0.0001"},
                                                     {1e22, "1e+22"},
                                                     {0.02, "0.02"},
                                                     {5e-324, "5e-324"},
                                                     {1.0 / 3.0, "0.3333333333333333"}};
  for (const auto& [value, text] : shortest) {
    EXPECT_EQ(Json(value).dump(-1, Json::Digits::kShortest), text);
    const Json back = parse_json(text, "t");
    EXPECT_FALSE(back.is_int()) << text;
    EXPECT_EQ(back.dump(), Json(value).dump()) << text;
  }
  const Json list(Json::Array{0.1, 3, Json(Json::Object{{"a", 0.2}})});
  EXPECT_EQ(list.dump(-1, Json::Digits::kShortest), R"([0.1, 3, {"a": 0.2}])");
}

TEST(Json, WritesCompactAndIndented) {
  Json v;
  v.set("a", Json(Json::Array{1, "x"}));
  v.set("b", true);
  v.set("a", 2);
  EXPECT_EQ(v.dump(), R"({"a": 2, "b": true})");
  EXPECT_EQ(v.dump(1), "{\n \"a\": 2,\n \"b\": true\n}");
  EXPECT_EQ(Json("\x01\"\\\xff").dump(), "\"\\u0001\\\"\\\\\xef\xbf\xbd\"");  // bad UTF-8 replaced
}

TEST(Json, RejectsInvalidText) {
  for (const char* text : {"", "{", "[1,]", "{\"a\" 1}", "nul", "1 2", "\"\xff\"", "[1", "\"a",
                           "{1: 2}", "NaN", "'a'", "[01]", "\x00"}) {
    EXPECT_THROW(parse_json(text, "file.json"), UserError) << text;
  }
  try {
    parse_json("{\"a\": ", "file.json");
    FAIL();
  } catch (const UserError& e) {
    EXPECT_NE(std::string(e.what()).find("file.json"), std::string::npos);
    EXPECT_NE(std::string(e.what()).find("byte"), std::string::npos);
  }
}

TEST(Json, LimitsDepth) {
  auto nested = [](size_t n) { return std::string(n, '[') + std::string(n, ']'); };
  EXPECT_NO_THROW(parse_json(nested(256), "t"));
  EXPECT_THROW(parse_json(nested(257), "t"), UserError);
  EXPECT_THROW(parse_json(nested(1000000), "t"), UserError);
}

}  // namespace
}  // namespace weft
