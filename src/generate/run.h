// generate/run.h: one call of generate(): rows enter, step, and leave.
#pragma once

#include <vector>

#include "generate/generator.h"

namespace weft {

class Generator::Run {
 public:
  Run(Generator& generator, const std::vector<std::vector<int32_t>>& prompts,
      const SampleOptions& options, const GenerateEvents& events);
  std::vector<std::vector<int32_t>> results();

 private:
  struct Row {
    size_t prompt = 0;
    std::vector<int32_t> tokens;  // the prompt, or a start token, and what follows
    size_t given = 0;             // of the tokens, those before what follows
    size_t fed = 0;               // of the tokens
    bool is_ended = false;        // as GenerateEvents::ends says
    size_t unseen() const { return tokens.size() - fed; }
  };
  int64_t source_of(const Row& row) const;  // its tokens; 0: a decoder-only model
  void copy_cache(size_t from, size_t to);
  void enter(size_t coming);
  void admit();
  void step();
  void sample(const GenerateStep& step, size_t rows);
  std::vector<int32_t> draw(const GenerateStep& step, size_t rows);
  bool has_ended(const Row& row);
  void end_row(size_t slot);

  Generator& g_;
  const std::vector<std::vector<int32_t>>& prompts_;
  const SampleOptions& options_;
  const GenerateEvents& events_;
  std::vector<Row> rows_;  // by slot
  size_t next_ = 0;        // first waiting prompt
  size_t num_full_ = 0;    // rows that ran out of positions
  std::vector<std::vector<int32_t>> results_;
};

}  // namespace weft
