// text/sql_form.h: a normal form of SQL text, in which answers are compared.
//
// Two texts with the same form differ only in what does not matter:
//   - case outside quotes (ASCII letters)
//   - spaces and line ends between words and signs
//   - the kind of quotes: 'x', "x" and `x` are the same
//   - semicolons at the end
//   - the order of the conditions that AND joins in a WHERE, also in that of a subquery. A
//     condition with OR outside parentheses, or with a BETWEEN, CASE or parenthesis that is not
//     complete, keeps its order.
// Nothing else is interpreted, neither types nor names nor comments. Any bytes have a form: text
// that is not SQL, such as the wrong answer of a model or a query with unquoted values, is compared
// by the same rules.
#pragma once

#include <string>
#include <string_view>

namespace weft {

// Words and signs, each after a blank but the first; quoted text as '...' with inner quotes
// doubled. Time and memory grow linearly with the text.
std::string sql_form(std::string_view text);

inline bool sql_match(std::string_view a, std::string_view b) { return sql_form(a) == sql_form(b); }

}  // namespace weft
