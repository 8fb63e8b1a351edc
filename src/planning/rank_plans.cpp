// planning/rank_plans.cpp: turns a rank's graphs into plans.
#include "planning/rank_plans.h"

#include <algorithm>

#include "launch/cores.h"
#include "planning/graphs.h"

namespace weft {
namespace {

PlanOptions plan_options(const Kernels& kernels, int num_threads, int64_t num_passes,
                         const Layout& layout) {
  return {&kernels, num_threads, static_cast<int>(num_passes), layout.tp, layout.dp};
}

// Rows that are answered together: their keys and values are part of the arena.
constexpr int64_t kAnsweredTogether = 16;

GenerateOptions training_answers(const RunConfig& c, const Model& model, const Layout& layout,
                                 int rank) {
  GenerateOptions o =
      answer_options(c, model, layout, rank, c.data.seq_length, c.eval.max_new_tokens);
  const int64_t parts = splits_questions(layout) ? layout.dp : 1;
  o.max_batch = std::min(kAnsweredTogether, (c.eval.generate + parts - 1) / parts);
  // With zero3 answers use training's shards in place.
  if (!splits_questions(layout)) o.rank.buckets = find_bucket_places(c, model, layout, rank);
  return o;
}

void add_answers(const RunConfig& c, const Model& model, const Layout& layout, int rank,
                 const Kernels& kernels, int num_threads, EnginePlans* plans) {
  plans->answers =
      make_generate_plans(model, training_answers(c, model, layout, rank), kernels, num_threads);
  for (const auto* list : {&plans->answers->plans, &plans->answers->encode}) {
    for (const GeneratePlan& p : *list) plans->layout.add(p.plan);
  }
}

}  // namespace

std::unique_ptr<EnginePlans> make_engine_plans(const RunConfig& config, const Model& model,
                                               const Layout& layout, int rank,
                                               const Kernels& kernels, int num_threads,
                                               const Graph* cut) {
  auto plans = std::make_unique<EnginePlans>();
  plans->train = make_plan(cut ? make_training_graph(config, layout, rank, *cut)
                               : make_training_graph(config, model, layout, rank),
                           plan_options(kernels, num_threads, config.num_passes(), layout));
  plans->layout.add(plans->train);
  if (config.has_eval()) {
    plans->eval = make_eval_plan(config, model, layout, rank, kernels, num_threads);
    plans->layout.add(*plans->eval);
  }
  if (config.eval.generate > 0)
    add_answers(config, model, layout, rank, kernels, num_threads, plans.get());
  return plans;
}

bool has_pass_collectives(const Layout& layout) {
  return layout.tp > 1 || !splits_questions(layout);
}

bool splits_questions(const Layout& layout) {
  return layout.dp == 1 || layout.shard != Shard::kZero3;
}

GenerateRank answer_rank(const Model& model, const Layout& layout, int rank) {
  GenerateRank held;
  if (layout.tp > 1 || layout.is_exact) {
    held.cuts = cuts_of(model);
    held.tensor = layout.tensor(rank);
  }
  if (!splits_questions(layout)) held.data = layout.data(rank, 1);
  return held;
}

// The positions of an encoder-decoder are those of its answer, after a start token.
GenerateOptions answer_options(const RunConfig& c, const Model& model, const Layout& layout,
                               int rank, int64_t prompt_tokens, int64_t answer_tokens) {
  const bool has_source = reads_source(model);
  GenerateOptions o;
  o.compute = c.compute_dtype();
  o.max_positions =
      std::min(model.max_positions(), (has_source ? 0 : prompt_tokens) + answer_tokens + 1);
  if (has_source) o.max_source_positions = std::min(model.max_positions(), prompt_tokens);
  o.rank = answer_rank(model, layout, rank);
  return o;
}

Plan make_eval_plan(const RunConfig& config, const Model& model, const Layout& layout, int rank,
                    const Kernels& kernels, int num_threads) {
  return make_plan(make_eval_graph(config, model, layout, rank),
                   plan_options(kernels, num_threads, 1, layout));
}

int choose_threads(const LaunchConfig& config, int num_ranks) {
  if (config.threads > 0) return static_cast<int>(config.threads);
  return std::max(1, static_cast<int>(usable_cores().size()) / num_ranks);
}

}  // namespace weft
