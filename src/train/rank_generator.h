// train/rank_generator.h: a generator with its weights: alone, or as one rank of a layout.
#pragma once

#include <memory>

#include "checkpoint/logical.h"
#include "generate/generator.h"
#include "planning/backend.h"
#include "train/ranks.h"

namespace weft {

// What this rank of the layout holds for generation.
GenerateRank generate_rank(const Model& model, const Layout& layout, int rank);

// UserError where data-parallel ranks would do the same work with whole copies of the weights.
void check_generate_layout(const Layout& layout);

class RankGenerator {
 public:
  // What it refers to must outlive it. Collective where there are several ranks. UserError where
  // memory is insufficient, with the hint.
  RankGenerator(const Model& model, const LogicalModel& source, GenerateOptions sizes, Ranks* ranks,
                const Backend& backend, ThreadPool* pool, const std::string& hint, bool is_forced);

  Generator& operator*() { return *generator_; }
  Generator* operator->() { return generator_.get(); }

 private:
  GeneratePlans plans_;
  ArenaLayout layout_;
  std::unique_ptr<Arena> arena_;
  std::unique_ptr<SharedArena> shared_;
  std::unique_ptr<Generator> generator_;
};

}  // namespace weft
