// tests/base/shell_word_test.cpp: what a shell would split, expand or end stays one word.
#include "base/shell_word.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

TEST(ShellWord, IsQuotedOnlyWhereNeeded) {
  EXPECT_EQ(shell_word("/runs/tiny-2/metrics.jsonl"), "/runs/tiny-2/metrics.jsonl");
  EXPECT_EQ(shell_word("/my runs/a"), "'/my runs/a'");
  EXPECT_EQ(shell_word("$HOME;*"), "'$HOME;*'");
  EXPECT_EQ(shell_word("it's"), "'it'\\''s'");
  EXPECT_EQ(shell_word("~/runs"), "'~/runs'");
  EXPECT_EQ(shell_word(""), "''");
}

}  // namespace
}  // namespace weft
