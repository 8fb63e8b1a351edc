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

GenerateOptions answer_options(const RunConfig& c, const Model& model) {
  GenerateOptions o;
  o.max_batch = std::min(kAnsweredTogether, (c.eval.generate + c.parallel.dp - 1) / c.parallel.dp);
  o.max_positions = std::min(model.max_positions(), c.data.seq_length + c.eval.max_new_tokens);
  o.compute = c.compute_dtype();
  return o;
}

}  // namespace

std::unique_ptr<EnginePlans> make_engine_plans(const RunConfig& config, const Model& model,
                                               const Layout& layout, int rank,
                                               const Kernels& kernels, int num_threads) {
  auto plans = std::make_unique<EnginePlans>();
  plans->train = make_plan(make_training_graph(config, model, layout, rank),
                           plan_options(kernels, num_threads, config.num_passes(), layout));
  plans->layout.add(plans->train);
  if (config.has_eval()) {
    plans->eval = make_eval_plan(config, model, layout, rank, kernels, num_threads);
    plans->layout.add(*plans->eval);
  }
  if (config.eval.generate > 0) {
    plans->answers =
        make_generate_plans(model, answer_options(config, model), kernels, num_threads);
    for (const GeneratePlan& p : plans->answers->plans) plans->layout.add(p.plan);
  }
  return plans;
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
