// tests/text/sql_form_test.cpp: pairs of queries that are the same, and pairs that are not.
#include "text/sql_form.h"

#include <gtest/gtest.h>

#include <chrono>

namespace weft {
namespace {

struct Pair {
  const char *a, *b;
};

void expect_same(const std::vector<Pair>& pairs) {
  for (const auto& [a, b] : pairs) {
    EXPECT_EQ(sql_form(a), sql_form(b)) << a << "\n" << b;
    EXPECT_TRUE(sql_match(a, b));
  }
}

void expect_different(const std::vector<Pair>& pairs) {
  for (const auto& [a, b] : pairs) {
    EXPECT_FALSE(sql_match(a, b)) << a << "\n" << b << "\n" << sql_form(a);
  }
}

TEST(SqlForm, IsReadable) {
  EXPECT_EQ(sql_form("SELECT  Name,\n\tAVG(x) FROM t WHERE b=\"It's\" AND a<=3;"),
            "select name , avg ( x ) from t where a <= 3 and b = 'It''s'");
  EXPECT_EQ(sql_form(""), "");
  EXPECT_EQ(sql_form(" \n;; "), "");
}

TEST(SqlForm, CaseSpacesAndTheSemicolon) {
  expect_same({{"select a from t", "SELECT A FROM T"},
               {"select a from t", "  select\ta\n from\r\n t  "},
               {"select a,b from t", "select a , b from t"},
               {"select count(*) from t", "SELECT COUNT ( * ) FROM t"},
               {"select a from t", "select a from t;"},
               {"select a from t", "select a from t ; ;\n"},
               {"select a from t where x=1", "select a from t where x = 1"},
               {"select a from t where x>=1", "select a from t where x >= 1"},
               {"select t.a from t", "select T . A from T"}});
  expect_different({{"select a from t", "select b from t"},
                    {"select a from t", "select a from t t"},
                    {"select ab from t", "select a b from t"},
                    {"select a from t; select b from t", "select a from t select b from t"},
                    {"select a from t where x >= 1", "select a from t where x > = 1"},
                    {"select a from t where x <= 1", "select a from t where x >= 1"},
                    {"select a from t where x = 1", "select a from t where x = 10"}});
}

TEST(SqlForm, Quotes) {
  expect_same({{"select 'a'", "select \"a\""},
               {"select `a` from t", "select \"a\" from t"},
               {"select 'it''s'", "select \"it's\""},
               {"select 'say \"x\"'", "select \"say \"\"x\"\"\""},
               {"select''", "select \"\""},
               {"where a = N'x'", "where a = n \"x\""}});
  expect_different({{"select 'a'", "select 'A'"},
                    {"select 'a b'", "select 'a  b'"},
                    {"select 'a'", "select a"},
                    {"select 'a;'", "select 'a'"},
                    {"select 'a''b'", "select 'a' 'b'"},
                    {"select ';'", "select"},
                    {"select 'x and y'", "select 'y and x'"}});
}

// Values without quotes, as WikiSQL has them.
TEST(SqlForm, ApostrophesAndLoneQuotes) {
  expect_same(
      {{"where player = Shaquille O'Neal and no = 3", "where NO = 3 AND Player = SHAQUILLE O'NEAL"},
       {"where a = O'Neal and b = D'Angelo", "where b = d'angelo and a = o'neal"},
       {"where a = 5' and b = 1", "WHERE b = 1 AND a = 5'"}});
  expect_different({{"where a = O'Neal", "where a = Oneal"},
                    {"where a = 5'", "where a = 5"},
                    {"where a = 'x", "where a = 'x'"},
                    {"select 'A", "select 'B"}});
}

TEST(SqlForm, OrderOfConditions) {
  expect_same(
      {{"select a from t where x = 1 and y = 2", "select a from t where y = 2 and x = 1"},
       {"where a and b and c", "where c and a and b"},
       {"where a = 1 and b = 2 order by c", "where b = 2 and a = 1 order by c"},
       {"where a = 1 and b = 2 group by c having d", "where b = 2 and a = 1 group by c having d"},
       {"where a = 1 and b = 2 limit 3", "where b = 2 and a = 1 limit 3;"},
       {"where a = 1 and b = 2 union select c from d where e and f",
        "where b = 2 and a = 1 union select c from d where f and e"},
       {"where x between 1 and 2 and y = 3", "where y = 3 and x between 1 and 2"},
       {"where (a or b) and c", "where c and (a or b)"},
       {"where case when a and b then 1 end = 1 and c",
        "where c and case when a and b then 1 end = 1"},
       {"where x in (select y from t where b and a) and z",
        "where z and x in (select y from t where a and b)"},
       {"where position = tight end and a = 1", "where a = 1 and position = tight end"},
       {"where group = A and points = 3", "where points = 3 and group = A"},
       {"where s = 'b and a' and c", "where c and s = 'b and a'"}});
  expect_different({{"where x = 1 and y = 2", "where x = 2 and y = 1"},
                    {"where a and b", "where a and b and b"},
                    {"where a and b", "where a or b"},
                    {"where a or b", "where b or a"},  // not a conjunction: left alone
                    {"where a and b or c", "where c and b or a"},
                    {"where x between 1 and 2", "where x between 2 and 1"},
                    {"where x between 1 and 2 and y", "where x between 1 and y and 2"},
                    {"select a , b from t", "select b , a from t"},
                    {"from t on a and b where c", "from t on b and a where c"},
                    {"where (a and b) or c", "where (b and a) or c"},
                    {"where a and b order by c and d", "where a and b order by d and c"},
                    {"where a and (b", "where (b and a"},
                    {"where case a and b", "where b and case a"}});
}

std::string repeated(const std::string& part, size_t n) {
  std::string text;
  for (size_t i = 0; i < n; ++i) text += part;
  return text;
}

// Whatever a model writes: no recursion without end, no time that explodes.
TEST(SqlForm, AnyText) {
  const auto start = std::chrono::steady_clock::now();
  for (const char* part : {"(", ")", "'", "\"", "`", "'a''", "where ", "( where a and ", "and ",
                           "case ", "between ", "(x)", ";", "\xff", "select a where b and a "}) {
    const std::string form = sql_form(repeated(part, 100'000));
    EXPECT_EQ(sql_form(form), form) << part;
  }
  const std::string zero("a\0b", 3);
  EXPECT_EQ(sql_form(zero), std::string("a \0 b", 5));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
}

TEST(SqlForm, DeepParenthesesAreCopied) {
  const std::string open = repeated("(", 200), close = repeated(")", 200);
  EXPECT_TRUE(sql_match(open + "A" + close, open + "a " + close));
  EXPECT_FALSE(sql_match(open + "where a and b" + close, open + "where b and a" + close));
  const std::string few = repeated("(", 20), end = repeated(")", 20);
  EXPECT_TRUE(sql_match(few + "where a and b" + end, few + "where b and a" + end));
}

}  // namespace
}  // namespace weft
