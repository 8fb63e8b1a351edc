// train/engine.cpp: trace, differentiate, plan; then weights in, batches through, states out.
#include "train/engine.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/error.h"
#include "graph/autodiff.h"
#include "model/load.h"
#include "optim/adamw.h"
#include "parallel/recompute.h"

namespace weft {
namespace {

Dtype gradient_dtype(const RunConfig& c) {
  // bf16 sums only where nothing is added afterwards: one pass a step, weights kept in bf16.
  const bool low =
      c.compute_dtype() == Dtype::kBf16 && !c.train.master_weights && c.num_passes() == 1;
  return low ? Dtype::kBf16 : Dtype::kF32;
}

Graph training_graph(const RunConfig& c, const Model& model) {
  Graph graph;
  const Ref losses =
      model.trace_loss(&graph, {c.micro_batch(), c.data.seq_length, c.compute_dtype(), 0});
  freeze_parameters(&graph, c.model.freeze);
  add_backward(&graph, losses, gradient_dtype(c));
  recompute_cheap_values(&graph);
  OptimizerOptions options;
  options.master_weights = c.has_masters();
  options.state_dtype = c.train.master_weights ? Dtype::kF32 : c.compute_dtype();
  options.decay_all = c.train.decay_all;
  add_adamw(&graph, options);
  return graph;
}

// n elements shared out in stretches; fn(begin, end).
template <typename Fn>
void in_stretches(ThreadPool* pool, int64_t n, const Fn& fn) {
  constexpr int64_t kStretch = 1 << 16;
  pool->run((n + kStretch - 1) / kStretch,
            [&](int64_t task, int) { fn(task * kStretch, std::min(n, (task + 1) * kStretch)); });
}

}  // namespace

std::unique_ptr<EnginePlans> make_engine_plans(const RunConfig& config, const Model& model,
                                               const Kernels& kernels, int num_threads) {
  auto plans = std::make_unique<EnginePlans>();
  PlanOptions options{&kernels, num_threads, static_cast<int>(config.num_passes())};
  plans->train = make_plan(training_graph(config, model), options);
  plans->layout.add(plans->train);
  if (config.has_eval()) {
    plans->eval = make_eval_plan(config, model, kernels, num_threads);
    plans->layout.add(*plans->eval);
  }
  return plans;
}

Plan make_eval_plan(const RunConfig& config, const Model& model, const Kernels& kernels,
                    int num_threads) {
  Graph graph;
  const Ref losses = model.trace_loss(
      &graph, {config.micro_batch(), config.data.seq_length, config.compute_dtype(), 0});
  add_loss_sum(&graph, losses);
  return make_plan(std::move(graph), {&kernels, num_threads, 1});
}

int choose_threads(const LaunchConfig& config) {
  if (config.threads > 0) return static_cast<int>(config.threads);
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) == 0 ? std::max(1, CPU_COUNT(&set)) : 1;
}

Engine::Engine(const RunConfig& config, const Model& model, const Kernels& kernels, int num_threads)
    : config_(config),
      model_(model),
      plans_(make_engine_plans(config, model, kernels, num_threads)),
      arena_(plans_->layout.total_bytes()),
      pool_(num_threads),
      train_(std::make_unique<Executor>(plans_->train, plans_->layout, arena_, &pool_)) {
  train_runner_ = std::make_unique<BatchRunner>(train_.get(), config.micro_batch());
  if (plans_->eval) {
    eval_ = std::make_unique<Executor>(*plans_->eval, plans_->layout, arena_, &pool_);
    eval_runner_ = std::make_unique<BatchRunner>(eval_.get(), config.micro_batch());
  }
  grad_norm_ = train_->at<double>("grad_norm");
  model.fill_constants(plans_->train.graph,
                       [&](const std::string& name) { return train_->find(name); });
}

void Engine::load_weights(const HfFolder& folder) {
  const std::vector<ParameterSpec> specs = model_.parameters();
  pool_.run(static_cast<int64_t>(specs.size()), [&](int64_t i, int) {
    const ParameterSpec& spec = specs[static_cast<size_t>(i)];
    const std::string master = spec.name + "#master";
    load_parameter(folder, spec, config_.compute_dtype(), train_->find(spec.name));
    if (std::byte* at = train_->find(master)) load_parameter(folder, spec, Dtype::kF32, at);
  });
  // What was copied need not stay in memory twice.
  for (const SafetensorsFile& file : folder.files()) file.drop_pages();
}

void Engine::init_weights(uint64_t seed) {
  const Dtype dtype = config_.compute_dtype();
  for (const ParameterSpec& spec : model_.parameters()) {
    void* at = train_->find(spec.name);
    float* master = train_->at<float>(spec.name + "#master");
    in_stretches(&pool_, num_elements(spec.shape), [&](int64_t begin, int64_t end) {
      constexpr int64_t kPiece = 1024;
      std::array<float, kPiece> values;
      for (int64_t at_element = begin; at_element < end; at_element += kPiece) {
        const int64_t n = std::min(kPiece, end - at_element);
        initial_values(spec, seed, at_element, at_element + n, values.data());
        for (int64_t i = 0; i < n; ++i) {
          store_element(at, dtype, at_element + i, values[static_cast<size_t>(i)]);
        }
        if (master) std::copy_n(values.data(), n, master + at_element);
      }
    });
  }
}

void Engine::load_checkpoint(const CheckpointReader& reader) {
  const std::vector<Slice> wanted = slices(true);
  pool_.run(static_cast<int64_t>(wanted.size()),
            [&](int64_t i, int) { reader.read(wanted[static_cast<size_t>(i)]); });
  round_masters();
}

void Engine::round_masters() {
  for (const ParameterSpec& spec : model_.parameters()) {
    const float* master = train_->at<float>(spec.name + "#master");
    if (!master) continue;
    void* at = train_->find(spec.name);
    in_stretches(&pool_, num_elements(spec.shape), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        store_element(at, config_.compute_dtype(), i, master[i]);
    });
  }
}

double Engine::run_passes(const Batch& batch) { return train_runner_->run(batch); }

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

double Engine::eval_loss_sum(const Batch& batch) {
  if (!eval_runner_) throw BugError("no evaluation plan was made");  // ensure() would take memory
  return eval_runner_->run(batch);
}

std::vector<Slice> Engine::slices(bool with_states) const {
  const Graph& graph = plans_->train.graph;
  std::vector<Slice> all;
  const auto add = [&](const Value& v) {
    all.push_back(whole_tensor(v.name, v.shape, v.dtype, train_->find(v.name)));
  };
  for (Ref r : graph.of_kind(ValueKind::kParameter)) {
    const auto master = graph.find(graph[r].name + "#master");
    add(master ? graph[*master] : graph[r]);
  }
  for (Ref r : graph.of_kind(ValueKind::kState)) {
    if (with_states && !graph[r].name.ends_with("#master")) add(graph[r]);
  }
  return all;
}

std::vector<Slice> Engine::checkpoint_slices() const { return slices(true); }

std::vector<Slice> Engine::weight_slices() const {
  std::vector<Slice> all = slices(false);
  for (Slice& s : all) {
    if (s.name.ends_with("#master")) s.name.resize(s.name.size() - std::string("#master").size());
  }
  return all;
}

}  // namespace weft
