// tests/base/yaml_test.cpp: the tree, its lines, its limits, and what is rejected.
#include "base/yaml.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace weft {
namespace {

std::string complaint(std::string_view text) {
  try {
    parse_yaml(text, "f.yaml");
  } catch (const UserError& e) {
    return e.what();
  }
  return "";
}

TEST(Yaml, ReadsATree) {
  const YamlNode root = parse_yaml("a: 1\nb:\n  c: \"x\"\n  d: [p, 'q']\n\ne: {f: 2}\n", "f.yaml");
  ASSERT_TRUE(root.is_map());
  ASSERT_EQ(root.items.size(), 3u);
  EXPECT_EQ(root.find("a")->text, "1");
  EXPECT_FALSE(root.find("a")->quoted);
  const YamlNode& b = *root.find("b");
  EXPECT_EQ(b.line, 2);
  EXPECT_EQ(b.find("c")->text, "x");
  EXPECT_TRUE(b.find("c")->quoted);
  EXPECT_EQ(b.find("c")->line, 3);
  ASSERT_TRUE(b.find("d")->is_list());
  EXPECT_EQ(b.find("d")->items[1].text, "q");
  EXPECT_TRUE(b.find("d")->items[1].quoted);
  EXPECT_EQ(root.find("e")->find("f")->text, "2");
  EXPECT_EQ(root.find("e")->line, 6);
  EXPECT_EQ(root.find("g"), nullptr);
}

TEST(Yaml, DistinguishesNullFromText) {
  const YamlNode root = parse_yaml("a:\nb: ~\nc: null\nd: \"null\"\n", "f.yaml");
  EXPECT_TRUE(root.find("a")->is_null());
  EXPECT_TRUE(root.find("b")->is_null());
  EXPECT_TRUE(root.find("c")->is_null());
  EXPECT_EQ(root.find("d")->text, "null");
  EXPECT_TRUE(parse_yaml("", "f.yaml").is_null());
  EXPECT_TRUE(parse_yaml("# only a comment\n", "f.yaml").is_null());
}

TEST(Yaml, NamesFileAndLine) {
  EXPECT_EQ(complaint("a: 1\nb: [1, 2\n").substr(0, 9), "f.yaml:3:");
  EXPECT_EQ(complaint("a: 1\nb: 2\na: 3\n"), "f.yaml:3: duplicate key \"a\", first on line 1");
}

TEST(Yaml, RejectsUnsupportedYaml) {
  EXPECT_NE(complaint("a: &x 1\nb: *x\n").find("anchors"), std::string::npos);
  EXPECT_NE(complaint("a: *x\n"), "");
  EXPECT_NE(complaint("a: !!str 1\n").find("tags"), std::string::npos);
  EXPECT_NE(complaint("a: !mine [1]\n").find("tags"), std::string::npos);
  EXPECT_NE(complaint("[a, b]: 1\n").find("key must be plain"), std::string::npos);
  EXPECT_NE(complaint("{a: 1}: 1\n").find("key must be plain"), std::string::npos);
  EXPECT_NE(complaint("a: 1\n---\nb: 2\n").find("more than one"), std::string::npos);
  EXPECT_NE(complaint("a: \xff\n").find("UTF-8"), std::string::npos);
}

TEST(Yaml, RejectsNulBytes) {
  using namespace std::string_view_literals;
  for (const std::string_view text : {"a: 1\nb: x\0y\n"sv, "a: 1\nb: x\0\n"sv, "a: 1\n\0b: x"sv}) {
    try {
      parse_yaml(text, "run.yaml");
      ADD_FAILURE() << "accepted";
    } catch (const UserError& e) {
      EXPECT_EQ(std::string(e.what()), "run.yaml:2: unexpected NUL byte");
    }
  }
}

TEST(Yaml, EnforcesItsLimits) {
  auto nested = [](size_t n) { return "a: " + std::string(n, '[') + std::string(n, ']'); };
  EXPECT_EQ(complaint(nested(kMaxYamlDepth - 1)), "");  // and the map around it
  EXPECT_NE(complaint(nested(kMaxYamlDepth)).find("nested deeper"), std::string::npos);
  EXPECT_NE(complaint(nested(100000)), "");
  EXPECT_EQ(complaint("a: " + std::string(kMaxYamlBytes - 3, 'x')), "");
  EXPECT_NE(complaint("a: " + std::string(kMaxYamlBytes, 'x')).find("more than"),
            std::string::npos);
}

TEST(Yaml, ScalarsRoundTrip) {
  const std::string texts[] = {"",           "plain",    "./a/b-c.txt",
                               "/x",         "..",       "true",
                               "No",         "null",     "~",
                               "5",          "1e-5",     ".5",
                               "{text}",     "[x]",      "a: b",
                               "a #b",       "#",        "- x",
                               " lead",      "trail ",   "a\nb\n",
                               "\t\r\"\\",   "it's",     "%TAG",
                               "@x",         "`",        "*a",
                               "&a",         "!t",       "|",
                               ">",          "\x01\x7f", "é — 語",
                               "\u2028",     "\ufeff",   "\u0085",
                               "\U0001F600", "x\\ny",    "Instruction: {a}\nInput: {b}",
                               "2024-01-01"};
  for (const std::string& text : texts) {
    const std::string line = "k: [" + yaml_scalar(text) + "]  # default\n";
    const YamlNode root = parse_yaml(line, "f.yaml");
    ASSERT_TRUE(root.find("k")->items.at(0).is_scalar()) << line;
    EXPECT_EQ(root.find("k")->items[0].text, text) << line;
  }
  EXPECT_EQ(yaml_scalar(std::string("a\0b", 3)), "\"a\\u0000b\"");
  EXPECT_EQ(yaml_scalar("./wiki.train.txt"), "./wiki.train.txt");
}

TEST(Yaml, DetectsUtf8) {
  EXPECT_TRUE(is_utf8("é語😀"));
  EXPECT_FALSE(is_utf8("\xc0\x80"));          // overlong
  EXPECT_FALSE(is_utf8("\xed\xa0\x80"));      // surrogate
  EXPECT_FALSE(is_utf8("\xf4\x90\x80\x80"));  // above U+10FFFF
  EXPECT_FALSE(is_utf8("\xe8\xaa"));          // cut
  EXPECT_FALSE(is_utf8("\x80"));
}

}  // namespace
}  // namespace weft
