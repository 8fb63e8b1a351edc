// train/own_answer.h: rows that no answer can match, because their own label does not.
//
// A generated answer is compared with the text of data.target, but a model learns the label's
// tokens. They need not decode to that text: a tokenizer may lack a character or join blanks, a
// long target is cut, and a label without an end token is never known to be complete.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "config/session.h"
#include "data/example.h"

namespace weft {

// An answer that was cut off, by max_new_tokens or by the model's positions, is not the row's, even
// where the text so far is.
bool has_ended(const std::vector<int32_t>& made, const std::vector<int32_t>& stop_ids);

// The rows of a rank that cannot be matched.
struct Unmatchable {
  int64_t count = 0;
  int64_t first = std::numeric_limits<int64_t>::max();  // row
  std::string text;                                     // of the first: where, and why
  void add(int64_t row, const std::function<std::string()>& describe);
};

// Takes the label as an answer that ends at its first stop token, and compares its text with
// `answer` by eval.match. Where they differ: what is decoded, the cause and what to do; else "".
std::string why_unmatchable(const Example& example, const std::string& answer,
                            const Session& session, const std::vector<int32_t>& stop_ids);

}  // namespace weft
