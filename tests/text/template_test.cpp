// tests/text/template_test.cpp: columns filled in, and malformed templates.
#include "text/template.h"

#include <gtest/gtest.h>

#include <map>

#include "base/error.h"

namespace weft {
namespace {

std::string render(std::string_view text, const std::map<std::string, std::string>& row) {
  return TextTemplate(text, "data.text").render([&](std::string_view name) {
    const auto found = row.find(std::string(name));
    return found == row.end() ? std::nullopt : std::optional<std::string_view>(found->second);
  });
}

std::string message_of(std::string_view text) {
  try {
    render(text, {{"a", "1"}});
  } catch (const UserError& e) {
    return e.what();
  }
  return "";
}

TEST(Template, PutsColumnsBetweenLiterals) {
  EXPECT_EQ(render("Q: {q}\nA: {a}\n{q}", {{"q", "x"}, {"a", "{y}"}}), "Q: x\nA: {y}\nx");
  EXPECT_EQ(render("", {}), "");
  EXPECT_EQ(render("plain", {}), "plain");
  EXPECT_EQ(render("{two words}", {{"two words", "ok"}}), "ok");
}

TEST(Template, DoubledBracesAreBraces) {
  EXPECT_EQ(render("{{\"x\": {a}}}", {{"a", "1"}}), "{\"x\": 1}");
  EXPECT_EQ(render("{{}}", {}), "{}");
}

TEST(Template, RejectsUnclosedBraces) {
  for (const char* bad : {"{a", "{", "a}", "{}", "{a{b}}", "{{{a}}"}) {
    EXPECT_NE(message_of(bad).find("data.text"), std::string::npos) << bad;
  }
  EXPECT_NE(message_of("x {a").find("character 2"), std::string::npos);
}

TEST(Template, NamesMissingAndExistingColumns) {
  const TextTemplate t("{a}{b}{a}", "data.source");
  EXPECT_EQ(t.columns(), (std::vector<std::string>{"a", "b"}));
  const std::vector<std::string> available{"a", "c"};
  try {
    t.check_columns(available);
    FAIL();
  } catch (const UserError& e) {
    EXPECT_STREQ(e.what(), "data.source: there is no column 'b'; there are: a, c");
  }
  const std::vector<std::string> enough{"b", "a", "c"};
  EXPECT_NO_THROW(t.check_columns(enough));
  EXPECT_NE(message_of("{zz}").find("'zz'"), std::string::npos);
}

}  // namespace
}  // namespace weft
