// tests/data/column_hint_test.cpp: what is suggested where a template's column does not exist.
#include "data/column_hint.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

TEST(ColumnHint, ASimilarNameComesFirst) {
  DataConfig c;
  c.source = "{question}";
  c.target = "{sqll}";
  EXPECT_EQ(column_hint(c, "sqll", {"question", "sql"}),
            "did you mean 'sql'? See data.source and data.target");
  EXPECT_EQ(column_hint(c, "answer", {"question", "sql"}).find("set data.text"), 0u);
  c.messages = "mesages";
  EXPECT_EQ(column_hint(c, "mesages", {"id", "messages"}),
            "chat rows: set data.messages: messages");
}

TEST(ColumnHint, BackslashesOfSingleQuotesAreReported) {
  DataConfig c;
  c.source = "{q}\n\t{{";
  EXPECT_TRUE(template_warnings(c).empty());
  c.target = "{q}\\n{a}";
  const auto lines = template_warnings(c);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0].find("data.target: \\n is a backslash and a letter here"), 0u);
}

}  // namespace
}  // namespace weft
