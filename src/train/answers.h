// train/answers.h: the rows of prompt and answer of an evaluation, and generated answers compared
// with theirs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/session.h"
#include "generate/generator.h"
#include "train/own_answer.h"
#include "train/ranks.h"

namespace weft {

// Rank r of n answers rows r, r + n, r + 2 n ... of the evaluation part, in file order: each row
// once, however uneven the split.
struct QuestionShare {
  int64_t most = 0;  // of the part's first rows, over all ranks; 0: all
  int rank = 0, num_ranks = 1;
};

// A rank's rows, as training sees them: prompts are cut to leave space for the answer.
struct Questions {
  std::vector<std::vector<int32_t>> prompts;  // of the rows that have one
  std::vector<std::string> answers;           // to those prompts
  int64_t num_rows = 0;                       // kept rows, including those without a prompt
  int64_t longest_prompt = 0, longest_answer = 0;
  int64_t num_long = 0;  // answers of more than eval.max_new_tokens
  int64_t num_cut = 0;   // prompts that were too long even so: packed rows
  Unmatchable unmatchable;
};
// stop_ids: the tokens that end an answer.
Questions read_questions(const Session& session, const RowSource& rows,
                         const std::vector<int32_t>& stop_ids, const QuestionShare& share = {});

// Says on rank 0 how many of all ranks' rows cannot be answered in full, or matched. Collective.
void warn_of_questions(Ranks& ranks, const Questions& mine, const RunConfig& config);

// A row without a prompt, because of the cut or an empty source, is not matched.
struct Matches {
  int64_t rows = 0, exact = 0, sql = 0;
  std::optional<double> exact_match() const;  // fraction of the rows; none: no rows
  std::optional<double> sql_match() const;
};
// Of all ranks. Tensor-parallel ranks have answered the same rows together, and with zero3 all
// ranks have. Collective.
Matches sum_matches(Ranks& ranks, const Matches& mine);

// This rank's rows of an evaluation part, of whose first `most` rows are answered; 0: all.
QuestionShare share_of(const Ranks& ranks, int64_t most);
// The ranks that answer the same rows together.
GeneratorRanks answering_ranks(const Ranks& ranks);

// How many tokens to generate, the same on all ranks: to match exactly, one more than the longest
// answer is enough.
int64_t answer_tokens(const EvalConfig& config, int64_t longest_answer);

// Answers greedily; an answer that does not end within max_new_tokens matches nothing. StopError
// where a signal asks to stop.
Matches answer_questions(Generator& generator, const Questions& questions,
                         const Tokenizer& tokenizer, const std::vector<int32_t>& stop_ids,
                         int64_t max_new_tokens, const GenerateEvents& events = {});

}  // namespace weft
