// planning/rank_plans.h: the plans of one rank, and the threads that it uses.
#pragma once

#include <memory>
#include <optional>

#include "config/run_config.h"
#include "exec/plan.h"
#include "generate/plans.h"
#include "model/model.h"
#include "planning/layout.h"

namespace weft {

// Everything that is known before memory is allocated: what `weft plan` reports.
struct EnginePlans {
  Plan train;
  std::optional<Plan> eval;
  std::optional<GeneratePlans> answers;  // of eval.generate
  ArenaLayout layout;
};
// cut: the rank's graph of make_cut_graph, where the caller has it.
std::unique_ptr<EnginePlans> make_engine_plans(const RunConfig& config, const Model& model,
                                               const Layout& layout, int rank,
                                               const Kernels& kernels, int num_threads,
                                               const Graph* cut = nullptr);

// Whether passes communicate: over tp, or for weights that are spread over dp.
bool has_pass_collectives(const Layout& layout);

// What a rank holds of the model to answer questions: whole weights, cut ones under tensor
// parallelism, its shards with zero3. Data-parallel ranks without zero3 answer different ones.
GenerateRank answer_rank(const Model& model, const Layout& layout, int rank);
bool splits_questions(const Layout& layout);
// The sizes of the plans, for prompts and answers of at most so many tokens.
GenerateOptions answer_options(const RunConfig& config, const Model& model, const Layout& layout,
                               int rank, int64_t prompt_tokens, int64_t answer_tokens);

// Forward and loss alone: the longest plan.
Plan make_eval_plan(const RunConfig& config, const Model& model, const Layout& layout, int rank,
                    const Kernels& kernels, int num_threads);

// Threads a rank uses: launch.threads, or its share of the cores this process may run on.
int choose_threads(const LaunchConfig& config, int num_ranks = 1);

}  // namespace weft
