// tests/config/keys_page_test.cpp: docs/keys.md is generated from the option table.
//
// After a change of the table: WEFT_WRITE_PAGES=1 build/tests/test_config
// --gtest_filter='KeysPage*'
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>

#include "config/run_changes.h"
#include "config/run_config.h"

namespace weft {
namespace {

constexpr const char* kPage = "docs/keys.md";  // tests run in the root of the repository
constexpr const char* kBegin =
    "<!-- keys: from here on written by tests/config/keys_page_test.cpp -->";

constexpr const char* kSections[][2] = {
    {"", "The run"},
    {"model", "`model`: what is trained"},
    {"data", "`data`: the rows"},
    {"parallel", "`parallel`: the layout of the ranks"},
    {"train", "`train`: the training"},
    {"eval", "`eval`: answers, generated and compared"},
    {"checkpoint", "`checkpoint`: what is kept"},
    {"launch", "`launch`: processes and cores"},
    {"track", "`track`: other programs that follow a run"},
};

std::string section_of(const std::string& key) {
  const size_t dot = key.find('.');
  return dot == std::string::npos ? "" : key.substr(0, dot);
}

// A cell of a Markdown table: a bar would end it, and <name> would be parsed as HTML.
std::string cell(const std::string& text) {
  std::string out;
  for (const char c : text) out += c == '|' ? "\\|" : c == '<' ? "&lt;" : std::string(1, c);
  return out;
}

std::string default_of(const OptionEntry& e) {
  if (e.required) return "must be given";
  if (e.default_value == "null" || e.default_value == "\"\"") return "none";
  return "`" + cell(e.default_value) + "`";
}

std::string meaning_of(const OptionEntry& e) {
  std::string text = e.help;
  if (e.not_built) text += "; **not built**: only the default is accepted";
  // What launch.device lacks depends on the build; its help text says so.
  if (!e.missing_values.empty() && e.key != "launch.device") {
    text += "; **not built**:";
    for (const std::string& value : e.missing_values) {
      text += (value == e.missing_values[0] ? " " : ", ") + value;
    }
  }
  return text;
}

std::vector<OptionEntry> entries() {
  RunConfig config;
  OptionTable table;
  bind_options(&table, &config);
  return table.entries();
}

std::string resume_table() {
  std::string page = "\n## What a resumed run may change\n\n| keys | on resume |\n|---|---|\n";
  for (const OnResume rule :
       {OnResume::kFixed, OnResume::kConverted, OnResume::kExact, OnResume::kMomentum})
    page += fmt::format("| {} | {} |\n", keys_of(rule, "`"), words_of(rule));
  return page + "| all others | may change |\n";
}

std::string tables() {
  std::string page = resume_table();
  const std::vector<OptionEntry> all = entries();
  for (const auto& [section, title] : kSections) {
    page +=
        fmt::format("\n## {}\n\n| key | meaning | values | default |\n|---|---|---|---|\n", title);
    for (const OptionEntry& e : all) {
      if (section_of(e.key) != section) continue;
      page += fmt::format("| `{}` | {} | {} | {} |\n", e.key, cell(meaning_of(e)), cell(e.wanted),
                          default_of(e));
    }
  }
  return page;
}

std::string read_page() {
  std::ostringstream text;
  text << std::ifstream(kPage).rdbuf();
  return text.str();
}

TEST(KeysPage, MatchesTheOptionTable) {
  const std::string page = read_page(), begin = std::string(kBegin) + "\n";
  const size_t at = page.find(begin);
  ASSERT_NE(at, std::string::npos) << kPage << " has no line " << kBegin;
  const std::string wanted = page.substr(0, at + begin.size()) + tables();
  if (std::getenv("WEFT_WRITE_PAGES")) std::ofstream(kPage) << wanted;
  EXPECT_EQ(read_page(), wanted) << kPage << " does not match the option table; see the head of "
                                 << __FILE__ << " for how to regenerate it";
}

// Fails when a key of a rule is renamed or removed in the option table.
TEST(KeysPage, EveryResumeRuleIsOfAKey) {
  const std::vector<OptionEntry> all = entries();
  for (const ResumeRule& rule : resume_rules()) {
    const std::string_view key = rule.key;
    EXPECT_TRUE(std::any_of(all.begin(), all.end(), [&](const OptionEntry& e) {
      return key.ends_with('.') ? e.key.starts_with(key) : e.key == key;
    })) << key;
  }
}

// A new section, or a key without an explanation, is not silently omitted.
TEST(KeysPage, HasEveryKey) {
  const std::string page = tables();
  for (const OptionEntry& e : entries()) {
    EXPECT_NE(page.find("| `" + e.key + "` | "), std::string::npos) << e.key;
    EXPECT_GE(e.help.size(), 4u) << e.key;
    EXPECT_EQ(e.help.find('\n'), std::string::npos) << e.key;
  }
}

}  // namespace
}  // namespace weft
