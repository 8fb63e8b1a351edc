// train/engine.cpp: makes plans, allocates memory, runs batches.
#include "train/engine.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/stop.h"
#include "optim/optimizer.h"
#include "planning/gpu_memory_check.h"
#include "planning/graphs.h"
#include "tensor/names.h"

namespace weft {
namespace {

Arena make_arena(const RunConfig& config, Ranks* ranks, const Kernels& kernels, int64_t bytes,
                 Device* device) {
  if (!device->is_host()) check_gpu_memory(config, ranks->layout(), kernels, bytes, *device);
  void* shared = device->is_host() ? ranks->take_memory(bytes) : nullptr;
  return shared ? Arena(shared, bytes) : Arena(bytes, device);
}

using MakeGraph = Graph (*)(const RunConfig&, const Model&, const Layout&, int rank);

// The same graph for rows of other lengths.
LengthPlans::Trace trace_lengths(MakeGraph make, const RunConfig& config, const Model& model,
                                 const Layout& layout, int rank) {
  return [=, &model](const Lengths& lengths) {
    return make(with_lengths(config, lengths), model, layout, rank);
  };
}

}  // namespace

std::unique_ptr<LengthPlans> make_eval_lengths(const Plan& plan, const RunConfig& config,
                                               const Model& model, const Layout& layout, int rank,
                                               const LengthPlans::Place& place) {
  auto plans =
      std::make_unique<LengthPlans>(plan, longest_lengths(config, model),
                                    trace_lengths(make_eval_graph, config, model, layout, rank),
                                    place, Passes{config.micro_batch(), config.num_passes()});
  plans->allow_stop();
  return plans;
}

Engine::Engine(const RunConfig& config, const Model& model, Ranks* ranks, const Kernels& kernels,
               int num_threads, Device* device)
    : config_(config),
      ranks_(ranks),
      plans_(
          make_engine_plans(config, model, ranks->layout(), ranks->rank(), kernels, num_threads)),
      arena_(make_arena(config, ranks, kernels, plans_->layout.total_bytes(), device)),
      shared_(ranks, device, kernels, arena_.data(), arena_.bytes()),
      pool_(num_threads) {
  Mesh mesh = ranks->mesh();
  // In fast mode every rank pads to the longest row of its own pass.
  mesh.passes_agree = !mesh.data || config.data.layout != "dynamic" || ranks->layout().is_exact;
  const LengthPlans::Place place{plans_->layout, arena_, &pool_, mesh};
  train_ = std::make_unique<LengthPlans>(
      plans_->train, longest_lengths(config, model),
      trace_lengths(make_training_graph, config, model, ranks->layout(), ranks->rank()), place,
      Passes{config.micro_batch(), config.num_passes()});
  if (plans_->eval)
    eval_ = make_eval_lengths(*plans_->eval, config, model, ranks->layout(), ranks->rank(), place);
  executor_ = &train_->longest();
  weights_ = std::make_unique<Weights>(*executor_, model, config.has_masters(), &pool_);
  in_flight_ = std::make_unique<StepsInFlight>(*executor_);
  executor_->fill([&](const auto& open) { model.fill_constants(plans_->train.graph, open); });
  if (config.scales_loss()) set_loss_scale({.scale = static_cast<float>(config.train.loss_scale)});
}

// Counts are exchanged together with the loss.
LossSums Engine::sum_over_ranks(const ExactSum& loss, const Batch& batch) {
  LossSums sums{loss, batch.target_tokens, batch.tokens, batch.positions};
  std::array<int64_t, kLossNumbers> numbers;
  std::copy_n(sums.loss.limbs(), ExactSum::kLimbs, numbers.begin());
  int64_t* const counts[] = {&sums.target_tokens, &sums.tokens, &sums.positions};
  for (size_t i = 0; i < 3; ++i) numbers[ExactSum::kLimbs + i] = *counts[i];
  ranks_->sum_over_data(numbers.data(), kLossNumbers);
  std::copy_n(numbers.begin(), ExactSum::kLimbs, sums.loss.limbs());
  for (size_t i = 0; i < 3; ++i) *counts[i] = numbers[ExactSum::kLimbs + i];
  return sums;
}

int64_t Engine::start_passes(const Batch& batch) {
  started_.begun = StepsInFlight::Clock::now();
  train_->run(batch);
  started_.sums = {{}, batch.target_tokens, batch.tokens, batch.positions};
  // The update divides by the targets of all ranks, so several ranks wait for each other here.
  if (ranks_->size() > 1) started_.sums = sum_over_ranks(train_->losses(), batch);
  return started_.sums.target_tokens;
}

StepScalars Engine::update_scalars(double lr, int64_t update_number) const {
  StepScalars s;
  s.target_tokens = started_.sums.target_tokens;
  s.clip_norm = config_.train.clip_norm;
  const OptimizerConfig& optimizer = config_.train.optimizer;
  s.optimizer = find_optimizer(optimizer.name).scalars(optimizer, lr, update_number);
  return s;
}

void Engine::start_update(double lr, int64_t update_number) {
  if (started_.sums.target_tokens > 0) executor_->run_finish(update_scalars(lr, update_number));
  in_flight_->add(started_);
}

Engine::StepResult Engine::end_step() {
  const StepsInFlight::Ended ended = in_flight_->take();
  StepResult result{ended.started.sums, ended.grad_norm, ended.loss_scale};
  if (ranks_->size() == 1) result.sums.loss = ended.loss;
  const auto took = StepsInFlight::Clock::now() - ended.started.begun;
  // A step without an update is too short to judge others by.
  if (result.sums.target_tokens > 0)
    ranks_->note_step(std::chrono::duration_cast<std::chrono::milliseconds>(took).count());
  return result;
}

void Engine::set_loss_scale(LossScale scale) {
  scale.factor = scale.scale / static_cast<float>(config_.loss_divisor());
  executor_->fill(
      [&](const auto& open) { *static_cast<LossScale*>(open(names::kLossScale)) = scale; });
}

LossSums Engine::eval_loss(const Batch& batch) {
  if (!eval_) throw BugError("no evaluation plan was made");  // ensure() would allocate
  eval_->run(batch);
  return sum_over_ranks(eval_->losses(), batch);
}

std::optional<LossSums> Engine::eval_loss(const Batch& batch,
                                          const LengthPlans::IsStopped& is_stopped) {
  if (!eval_) throw BugError("no evaluation plan was made");
  try {
    if (!eval_->run(batch, is_stopped)) return std::nullopt;
  } catch (const StopError&) {
    // Midway through a pass: only on this rank, and the others learn it at their next poll; or,
    // where the pass has collectives, on all ranks at once.
  }
  if (is_stopped()) return std::nullopt;
  return sum_over_ranks(eval_->losses(), batch);
}

}  // namespace weft
