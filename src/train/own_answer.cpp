// train/own_answer.cpp: decodes labels as answers are.
#include "train/own_answer.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json.h"
#include "generate/stop_ids.h"
#include "text/sql_form.h"

namespace weft {
namespace {

std::vector<int32_t> label_as_answer(const Example& example, const std::vector<int32_t>& stop_ids) {
  const auto begin = example.ids.begin() + example.num_source;
  auto end = std::find_first_of(begin, example.ids.end(), stop_ids.begin(), stop_ids.end());
  if (end != example.ids.end()) ++end;
  return {begin, end};
}

bool is_inside_character(char byte) { return (static_cast<unsigned char>(byte) & 0xc0) == 0x80; }

// Quoted, from a little before the place.
std::string excerpt(const std::string& text, size_t at) {
  constexpr size_t kBefore = 30, kMost = 80;
  size_t begin = at > kBefore ? at - kBefore : 0;
  while (begin > 0 && is_inside_character(text[begin])) --begin;
  size_t end = std::min(text.size(), begin + kMost);
  while (end < text.size() && is_inside_character(text[end])) ++end;
  return fmt::format("{}{}{}", begin > 0 ? "..." : "", Json(text.substr(begin, end - begin)).dump(),
                     end < text.size() ? "..." : "");
}

std::string describe_difference(const std::string& got, const std::string& wanted) {
  const auto [g, w] = std::mismatch(got.begin(), got.end(), wanted.begin(), wanted.end());
  const auto at = static_cast<size_t>(g - got.begin());
  return fmt::format("whose label is decoded as {}, and data.target is {}", excerpt(got, at),
                     excerpt(wanted, at));
}

}  // namespace

bool has_ended(const std::vector<int32_t>& made, const std::vector<int32_t>& stop_ids) {
  return !made.empty() &&
         std::find(stop_ids.begin(), stop_ids.end(), made.back()) != stop_ids.end();
}

void Unmatchable::add(int64_t row, const std::function<std::string()>& describe) {
  if (count++ > 0) return;
  first = row;
  text = describe();
}

std::string why_unmatchable(const Example& example, const std::string& answer,
                            const Session& session, const std::vector<int32_t>& stop_ids) {
  const std::vector<int32_t> label = label_as_answer(example, stop_ids);
  const std::string text = decode_continuation(label, *session.tokenizer, stop_ids);
  const bool is_sql = session.config.eval.match == "sql";
  const bool is_same = text == answer || (is_sql && sql_match(text, answer));
  if (is_same && has_ended(label, stop_ids)) return "";
  const std::string difference = is_same ? "whose label ends with no token that ends an answer: "
                                         : describe_difference(text, answer) + ": ";
  if (example.target_cut)
    return fmt::format("{}raise {}, to which it is cut", difference,
                       reads_source(*session.model) ? "data.target_length" : "data.seq_length");
  if (!is_same)
    return difference +
           "the tokenizer does not give the text back; write data.target with what it has, or set "
           "data.tokenizer";
  return difference +
         (session.tokenizer->eos_id() ? "set data.append_eos to true" : "the tokenizer has none");
}

}  // namespace weft
