// train/training_answers.h: answers that a run in training generates at its evaluations.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "train/answers.h"
#include "train/engine.h"

namespace weft {

struct AnswerResult {
  std::optional<double> exact_match, sql_match;  // sql_match: where eval.match is sql
  int stop = 0;                                  // a signal on some rank: the same on all
};

// The first eval.generate rows of the evaluation part, answered with the current weights, in the
// arena of the engine.
class TrainingAnswers {
 public:
  // side_files: config.json and generation_config.json of the trained model, which name the tokens
  // that end an answer. Collective; the session and the engine must outlive it.
  TrainingAnswers(const Session& session, const RowSource& rows,
                  const std::map<std::string, std::string>& side_files, Engine* engine,
                  Ranks* ranks);

  // Collective. show: the part done on this rank, and the seconds so far.
  using Show = std::function<void(double part, double seconds)>;
  AnswerResult measure(const Show& show);

 private:
  const Session& session_;
  Engine* engine_;
  Ranks* ranks_;
  std::vector<int32_t> stop_ids_;
  Questions questions_;
  int64_t max_new_tokens_ = 0;
};

}  // namespace weft
