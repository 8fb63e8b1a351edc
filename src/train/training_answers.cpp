// train/training_answers.cpp: the questions are read once, before the first step.
#include "train/training_answers.h"

#include <algorithm>
#include <chrono>

#include "base/elapsed.h"
#include "base/error.h"
#include "base/log.h"
#include "base/stop.h"
#include "comm/comm.h"
#include "generate/stop_ids.h"
#include "train/rank_agreement.h"

namespace weft {
namespace {

std::vector<int32_t> stop_ids_of(const std::map<std::string, std::string>& files,
                                 const Tokenizer& tokenizer) {
  const Json config = parse_json(files.at("config.json"), "config.json");
  const auto found = files.find("generation_config.json");
  if (found == files.end()) return find_stop_ids(&tokenizer, config, nullptr);
  const Json generation = parse_json(found->second, "generation_config.json");
  return find_stop_ids(&tokenizer, config, &generation);
}

}  // namespace

TrainingAnswers::TrainingAnswers(const Session& session, const RowSource& rows,
                                 const std::map<std::string, std::string>& side_files,
                                 Engine* engine, Ranks* ranks)
    : session_(session),
      engine_(engine),
      ranks_(ranks),
      stop_ids_(stop_ids_of(side_files, *session.tokenizer)),
      questions_(read_questions(session, rows, stop_ids_,
                                share_of(*ranks, session.config.eval.generate))) {
  const std::vector<int64_t> longest = gather_numbers(*ranks, questions_.longest_answer);
  const EvalConfig& config = session.config.eval;
  max_new_tokens_ = answer_tokens(config, *std::max_element(longest.begin(), longest.end()));
  warn_of_questions(*ranks, questions_, session.config);
}

AnswerResult TrainingAnswers::measure(const Show& show) {
  using Clock = std::chrono::steady_clock;
  const ScopedNoDeadline no_deadline(ranks_->world());  // ranks may have answers of other lengths
  const auto start = Clock::now();
  Matches mine;
  int stop = 0;
  size_t ended = 0;
  GenerateEvents events;
  ranks_->note_phase(Phase::kAnswering);
  events.on_token = [&](size_t, int32_t) {
    ranks_->note_phase(Phase::kAnswering);
    // Ranks answer their own rows: no collective reports to this one that another was lost.
    if (ranks_->world().is_aborted()) throw PeerError("answering aborted: another rank was lost");
  };
  events.on_end = [&](size_t, const std::vector<int32_t>&) {
    show(static_cast<double>(++ended) / static_cast<double>(questions_.prompts.size()),
         seconds_since(start));
  };
  try {
    mine = answer_questions(engine_->generator(), questions_, *session_.tokenizer, stop_ids_,
                            max_new_tokens_, events);
  } catch (const StopError& e) {  // the others learn of it below
    stop = e.signal();
  }
  AnswerResult result;
  result.stop = agree_on_signal(*ranks_, stop);
  if (result.stop != 0) return result;
  const Matches all = sum_matches(*ranks_, mine);
  result.exact_match = all.exact_match();
  if (session_.config.eval.match == "sql") result.sql_match = all.sql_match();
  return result;
}

}  // namespace weft
