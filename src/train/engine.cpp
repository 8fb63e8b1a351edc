// train/engine.cpp: plans made, memory taken, batches through.
#include "train/engine.h"

#include <algorithm>

#include "base/error.h"
#include "launch/cores.h"
#include "train/graphs.h"

namespace weft {
namespace {

PlanOptions plan_options(const Kernels& kernels, int num_threads, int64_t num_passes,
                         const Layout& layout) {
  return {&kernels, num_threads, static_cast<int>(num_passes), layout.tp, layout.dp};
}

Arena make_arena(Ranks* ranks, int64_t bytes) {
  void* shared = ranks->take_memory(bytes);
  return shared ? Arena(shared, bytes) : Arena(bytes);
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

Engine::Engine(const RunConfig& config, const Model& model, Ranks* ranks, const Kernels& kernels,
               int num_threads)
    : config_(config),
      ranks_(ranks),
      plans_(
          make_engine_plans(config, model, ranks->layout(), ranks->rank(), kernels, num_threads)),
      arena_(make_arena(ranks, plans_->layout.total_bytes())),
      pool_(num_threads),
      train_(std::make_unique<Executor>(plans_->train, plans_->layout, arena_, &pool_,
                                        ranks->mesh())) {
  const Share share = share_of(config, ranks->layout(), ranks->rank());
  train_runner_ = std::make_unique<BatchRunner>(train_.get(), share);
  if (plans_->eval) {
    eval_ =
        std::make_unique<Executor>(*plans_->eval, plans_->layout, arena_, &pool_, ranks->mesh());
    eval_runner_ = std::make_unique<BatchRunner>(eval_.get(), share);
  }
  weights_ = std::make_unique<Weights>(*train_, model, config.has_masters(), &pool_);
  grad_norm_ = train_->at<double>("grad_norm");
  model.fill_constants(plans_->train.graph,
                       [&](const std::string& name) { return train_->find(name); });
}

double Engine::run_passes(const Batch& batch) {
  ExactSum sum = train_runner_->run(batch);
  ranks_->sum_over_data(sum.limbs(), ExactSum::kLimbs);
  return sum.value();
}

double Engine::update(const Batch& batch, double lr, int64_t update_number) {
  StepScalars s;
  s.target_tokens = batch.target_tokens;
  s.update = update_number;
  s.lr = lr;
  s.clip_norm = config_.train.clip_norm;
  s.beta1 = config_.train.betas[0];
  s.beta2 = config_.train.betas[1];
  s.eps = config_.train.eps;
  s.weight_decay = config_.train.weight_decay;
  train_->run_finish(s);
  return *grad_norm_;
}

void Engine::eval_loss(const Batch& batch, ExactSum* sum) {
  if (!eval_runner_) throw BugError("no evaluation plan was made");  // ensure() would take memory
  ExactSum part = eval_runner_->run(batch);
  ranks_->sum_over_data(part.limbs(), ExactSum::kLimbs);
  part.normalize();
  sum->add(part);
}

}  // namespace weft
