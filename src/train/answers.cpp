// train/answers.cpp: reads, generates, counts.
#include "train/answers.h"

#include <algorithm>
#include <array>

#include "base/log.h"
#include "data/example.h"
#include "generate/stop_ids.h"
#include "planning/rank_plans.h"
#include "text/sql_form.h"
#include "train/rank_agreement.h"

namespace weft {
namespace {

std::optional<double> part_of(int64_t count, int64_t rows) {
  if (rows == 0) return std::nullopt;
  return static_cast<double>(count) / static_cast<double>(rows);
}

// Packed rows are not cut: their prompts lose their beginning here, as those of other layouts did.
int64_t longest_prompt_for(const Session& session, int64_t num_answer) {
  const RunConfig& c = session.config;
  const int64_t positions = session.model->max_positions();
  if (reads_source(*session.model)) return std::min(c.data.seq_length, positions);
  const int64_t answer = std::max<int64_t>(std::min(num_answer, c.eval.max_new_tokens), 1);
  return std::min(c.data.seq_length, std::max<int64_t>(positions + 1 - answer, 1));
}

}  // namespace

Questions read_questions(const Session& session, const RowSource& rows,
                         const std::vector<int32_t>& stop_ids, const QuestionShare& share) {
  const RunConfig& c = session.config;
  const ExampleMaker maker(c.data, *session.tokenizer, session.model->vocab_size(),
                           session.train_stream().kind);
  const int64_t num_rows = rows_taken(c.data, rows.size());
  Questions q;
  Row row;
  Example example;
  int64_t member = -1;
  const EvalSplit split = session.eval_split(rows);
  for (int64_t i = 0; i < num_rows; ++i) {
    if (!session.is_in_eval_part(split, i)) continue;
    if (++member == share.most && share.most > 0) break;
    if (member % share.num_ranks != share.rank) continue;
    rows.read(i, row);
    if (!maker.make(rows, i, row, example)) continue;
    ++q.num_rows;
    const std::string answer = maker.answer(rows, i, row);
    if (const std::string why = why_unmatchable(example, answer, session, stop_ids); !why.empty())
      q.unmatchable.add(i, [&] { return fmt::format("{}, {}", rows.where(i), why); });
    const int64_t num_source = example.num_source,
                  num_answer = static_cast<int64_t>(example.ids.size()) - num_source;
    if (num_source == 0) continue;
    const int64_t kept = std::min(num_source, longest_prompt_for(session, num_answer));
    q.num_cut += kept < num_source;
    q.prompts.emplace_back(example.ids.begin() + (num_source - kept),
                           example.ids.begin() + num_source);
    q.answers.push_back(answer);
    q.longest_prompt = std::max(q.longest_prompt, kept);
    q.longest_answer = std::max(q.longest_answer, num_answer);
    q.num_long += num_answer > c.eval.max_new_tokens;
  }
  return q;
}

std::optional<double> Matches::exact_match() const { return part_of(exact, rows); }
std::optional<double> Matches::sql_match() const { return part_of(sql, rows); }

Matches sum_matches(Ranks& ranks, const Matches& mine) {
  if (!splits_questions(ranks.layout())) return mine;
  std::array<int64_t, 3> numbers = {mine.rows, mine.exact, mine.sql};
  ranks.sum_over_data(numbers.data(), 3);
  return {numbers[0], numbers[1], numbers[2]};
}

void warn_of_questions(Ranks& ranks, const Questions& mine, const RunConfig& config) {
  const Unmatchable& bad = mine.unmatchable;
  std::array<int64_t, 4> counts = {mine.num_long, mine.num_cut, bad.count, mine.num_rows};
  if (splits_questions(ranks.layout())) ranks.sum_over_data(counts.data(), counts.size());
  const std::vector<int64_t> firsts = gather_numbers(ranks, bad.first);
  const bool has_first = bad.first == *std::min_element(firsts.begin(), firsts.end());
  const std::string first = first_text(ranks, has_first ? bad.text : "");
  if (ranks.rank() != 0) return;
  if (counts[2] > 0)
    log_warning(
        "{} of {} rows cannot be matched: even their own labels, decoded as an answer is, do not "
        "match data.target. The first is {}",
        counts[2], counts[3], first);
  if (counts[0] > 0)
    log_warning("{} answers have more than eval.max_new_tokens, {}, and cannot be matched",
                counts[0], config.eval.max_new_tokens);
  if (counts[1] > 0)
    log_warning(
        "{} prompts are longer than data.seq_length, {}, or leave no space for the answer: "
        "their beginnings were cut",
        counts[1], config.data.seq_length);
}

QuestionShare share_of(const Ranks& ranks, int64_t most) {
  if (!splits_questions(ranks.layout())) return {most, 0, 1};
  return {most, ranks.dp_rank(), ranks.layout().dp};
}

GeneratorRanks answering_ranks(const Ranks& ranks) {
  Mesh mesh = ranks.mesh();
  if (!splits_questions(ranks.layout())) return {mesh, &ranks.world()};
  mesh.dp = 1;
  mesh.data = nullptr;
  return {mesh, ranks.tensor_group()};
}

// Text that is the same SQL may be longer than the answer.
int64_t answer_tokens(const EvalConfig& config, int64_t longest_answer) {
  if (config.match == "sql") return config.max_new_tokens;
  return std::min(config.max_new_tokens, longest_answer + 1);
}

Matches answer_questions(Generator& generator, const Questions& questions,
                         const Tokenizer& tokenizer, const std::vector<int32_t>& stop_ids,
                         int64_t max_new_tokens, const GenerateEvents& events) {
  SampleOptions sample;
  sample.max_new_tokens = max_new_tokens;
  sample.stop_ids = stop_ids;
  const auto made = generator.generate(questions.prompts, sample, events);
  Matches matches;
  matches.rows = questions.num_rows;
  for (size_t i = 0; i < made.size(); ++i) {
    if (!has_ended(made[i], stop_ids)) continue;
    const std::string text = decode_continuation(made[i], tokenizer, stop_ids);
    const bool is_equal = text == questions.answers[i];
    matches.exact += is_equal;
    matches.sql += is_equal || sql_match(text, questions.answers[i]);
  }
  return matches;
}

}  // namespace weft
