// train/engine.cpp: makes plans, allocates memory, runs batches.
#include "train/engine.h"

#include <thread>
#include <utility>

#include "base/error.h"
#include "graph/portion.h"
#include "optim/optimizer.h"
#include "planning/gpu_memory_check.h"
#include "planning/graphs.h"
#include "tensor/names.h"
#include "train/answers.h"
#include "train/eval_engine.h"

namespace weft {
namespace {

// In the place of a rank that died, whose memory the driver may still be freeing. It fitted when
// the run began: where it does not now, another try may help.
Arena make_arena_again(int64_t bytes, Device* device) {
  constexpr auto kNap = std::chrono::milliseconds(10);
  constexpr int kNaps = 300;
  for (int i = 0; i < kNaps && device->free_bytes() < bytes; ++i) std::this_thread::sleep_for(kNap);
  try {
    return Arena(bytes, device);
  } catch (const UserError& e) {
    throw PeerError(fmt::format("the GPU memory of a replaced rank is gone: {}", e.what()));
  }
}

Arena make_arena(const RunConfig& config, Ranks* ranks, const Kernels& kernels, int64_t bytes,
                 Device* device) {
  if (!device->is_host() && ranks->is_replacement()) return make_arena_again(bytes, device);
  if (!device->is_host()) check_gpu_memory(config, ranks->layout(), kernels, bytes, *device);
  void* shared = device->is_host() ? ranks->take_memory(bytes) : nullptr;
  return shared ? Arena(shared, bytes) : Arena(bytes, device);
}

}  // namespace

Engine::Engine(const RunConfig& config, const Model& model, Ranks* ranks, const Kernels& kernels,
               int num_threads, Device* device)
    : config_(config),
      model_(model),
      ranks_(ranks),
      plans_(
          make_engine_plans(config, model, ranks->layout(), ranks->rank(), kernels, num_threads)),
      arena_(make_arena(config, ranks, kernels, plans_->layout.total_bytes(), device)),
      shared_(ranks, device, kernels, arena_.data(), arena_.bytes()),
      pool_(num_threads) {
  const LengthPlans::Place place{plans_->layout, arena_, &pool_, mesh_of(config, *ranks)};
  const auto trace = [config, &model, ranks](const Lengths& lengths) {
    return make_training_graph(with_lengths(config, lengths), model, ranks->layout(),
                               ranks->rank());
  };
  train_ = std::make_unique<LengthPlans>(plans_->train, longest_lengths(config, model), trace,
                                         place, Passes{config.micro_batch(), config.num_passes()});
  if (plans_->eval)
    eval_ = make_eval_lengths(*plans_->eval, config, model, ranks->layout(), ranks->rank(), place);
  executor_ = &train_->longest();
  weights_ = std::make_unique<Weights>(*executor_, model, config.has_masters(), &pool_);
  in_flight_ = std::make_unique<StepsInFlight>(*executor_);
  executor_->fill([&](const auto& open) { model.fill_constants(plans_->train.graph, open); });
  if (config.scales_loss()) set_loss_scale({.scale = static_cast<float>(config.train.loss_scale)});
}

int64_t Engine::start_passes(const Batch& batch, const std::function<void()>& before_meeting) {
  started_.begun = StepsInFlight::Clock::now();
  train_->run(batch);
  if (before_meeting) before_meeting();
  started_.sums = {{}, batch.target_tokens, batch.tokens, batch.positions};
  // The update divides by the targets of all ranks, so several ranks wait for each other here.
  if (ranks_->size() > 1) started_.sums = sum_over_ranks(*ranks_, train_->losses(), batch);
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
  if (started_.sums.target_tokens > 0) {
    whole_update_.reset();
    started_update_ = update_number;
    executor_->run_finish(update_scalars(lr, update_number));
  }
  in_flight_->add(started_);
}

Engine::StepResult Engine::end_step() {
  const StepsInFlight::Ended ended = in_flight_->take();
  if (in_flight_->is_empty() && started_update_)
    whole_update_ = std::exchange(started_update_, std::nullopt);
  StepResult result{ended.started.sums, ended.grad_norm, ended.loss_scale};
  if (ranks_->size() == 1) result.sums.loss = ended.loss;
  const auto took = StepsInFlight::Clock::now() - ended.started.begun;
  // A step without an update is too short to judge others by.
  if (result.sums.target_tokens > 0)
    ranks_->note_step(std::chrono::duration_cast<std::chrono::milliseconds>(took).count());
  return result;
}

void Engine::drop_steps() {
  shared_.leave();
  train_->drain();
  if (eval_) eval_->drain();
  generator_.reset();
  copied_weights_.clear();
  in_flight_->drop();
  started_update_.reset();
}

void Engine::set_loss_scale(LossScale scale) {
  scale.factor = scale.scale / static_cast<float>(config_.loss_divisor());
  executor_->fill(
      [&](const auto& open) { *static_cast<LossScale*>(open(names::kLossScale)) = scale; });
}

LossSums Engine::eval_loss(const Batch& batch) {
  if (!eval_) throw BugError("no evaluation plan was made");  // ensure() would allocate
  eval_->run(batch);
  return sum_over_ranks(*ranks_, eval_->losses(), batch);
}

std::optional<LossSums> Engine::eval_loss(const Batch& batch,
                                          const LengthPlans::IsStopped& is_stopped) {
  if (!eval_) throw BugError("no evaluation plan was made");
  return eval_batch(*eval_, *ranks_, batch, is_stopped);
}

Generator& Engine::generator() {
  if (!generator_) make_generator();
  for (const WeightCopy& c : copied_weights_) arena_.device()->copy(c.to, c.from, c.bytes);
  return *generator_;
}

// Parameters of training may be in buckets, which the plans of answers do not have.
void Engine::make_generator() {
  ensure(plans_->answers.has_value(), "no plans for answers were made");
  generator_ = std::make_unique<Generator>(model_, *plans_->answers, plans_->layout, arena_, &pool_,
                                           answering_ranks(*ranks_));
  // By kind: with zero3 a gathered parameter may have the name of the stored one.
  std::map<std::string, Ref> trained;
  const Graph& training = plans_->train.graph;
  for (const Ref r : training.of_kind(ValueKind::kParameter)) trained[training[r].name] = r;
  for (const Executor* answers : generator_->executors()) {
    const Graph& graph = answers->plan().graph;
    for (const Ref r : graph.of_kind(ValueKind::kParameter)) {
      if (graph[r].is_bucket) continue;
      const std::byte* from = executor_->data(trained.at(graph[r].name));
      const int64_t bytes = portion_elements(portion_of(graph[r])) * dtype_bytes(graph[r].dtype);
      if (answers->data(r) == from) continue;
      ensure(splits_questions(ranks_->layout()), graph[r].name + " is not in training's bucket");
      copied_weights_.push_back({answers->data(r), from, bytes});
    }
  }
}

}  // namespace weft
