// generate/generator.cpp: memory and plans; the loop is in run.cpp.
#include "generate/generator.h"

#include <algorithm>

#include "base/error.h"
#include "generate/run.h"

namespace weft {

Generator::Generator(const Model& model, const GenerateOptions& options, const Kernels& kernels,
                     ThreadPool* pool, const LoadParameter& load, Device* device)
    : Generator(model, make_generate_plans(model, options, kernels, pool->num_threads()), pool,
                load, device) {}

Generator::Generator(const Model& model, GeneratePlans plans, ThreadPool* pool,
                     const LoadParameter& load, Device* device)
    : model_(model), pool_(pool), own_plans_(std::make_unique<GeneratePlans>(std::move(plans))) {
  const ArenaLayout layout = layout_of(*own_plans_);
  own_arena_ = std::make_unique<Arena>(layout.total_bytes(), device);
  bind(*own_plans_, layout, *own_arena_);
  load_parameters(load);
}

Generator::Generator(const Model& model, const GeneratePlans& plans, const ArenaLayout& layout,
                     const Arena& arena, ThreadPool* pool, const GeneratorRanks& ranks)
    : model_(model), pool_(pool), ranks_(ranks) {
  bind(plans, layout, arena);
}

void Generator::bind(const GeneratePlans& plans, const ArenaLayout& layout, const Arena& arena) {
  options_ = plans.options;
  host_logits_ = std::make_unique<HostLogits>(arena.device(), options_.max_batch,
                                              local_vocabulary(plans.plans.front().plan.graph),
                                              ranks_.mesh.tensor);
  for (const GeneratePlan& p : plans.plans)
    steps_.emplace_back(p, layout, arena, pool_, host_logits_.get(), ranks_.mesh);
  for (const GeneratePlan& p : plans.encode)
    encoders_.emplace_back(p, layout, arena, pool_, ranks_.mesh);
  cache_ = std::make_unique<KeyValueCache>(plans.plans.front().plan.graph, layout, arena);
  for (const ParameterSpec& spec : model_.parameters()) {
    std::byte* found = nullptr;
    for (const Executor* e : executors()) found = found ? found : e->find(spec.name);
    parameters_.push_back(found);
  }
  // Constants are looked up by name: a second trace provides them.
  Graph named;
  model_.trace_generate(&named, trace_options(options_, 1, 1));
  steps_.front().executor().fill([&](const auto& open) {
    model_.fill_constants(named,
                          [&](const std::string& name) { return open(kGeneratePrefix + name); });
  });
}

void Generator::load_parameters(const LoadParameter& load) {
  const std::vector<ParameterSpec> specs = model_.parameters();
  pool_->run(static_cast<int64_t>(specs.size()), [&](int64_t i, int) {
    const auto at = static_cast<size_t>(i);
    ensure(parameters_[at] != nullptr, "this rank holds a part of " + specs[at].name);
    Device* device = steps_.front().executor().device();
    if (device->is_host()) return load(specs[at], options_.compute, parameters_[at]);
    const int64_t bytes = num_elements(specs[at].shape) * dtype_bytes(options_.compute);
    std::vector<std::byte> host(static_cast<size_t>(bytes));
    load(specs[at], options_.compute, host.data());
    device->write(parameters_[at], host.data(), bytes);
  });
}

std::vector<const Executor*> Generator::executors() const {
  std::vector<const Executor*> all = {&steps_.front().executor()};
  if (!encoders_.empty()) all.push_back(&encoders_.front().executor());
  return all;
}

// Group by group, the last one first: each is encoded into the first slots, and then moved.
void Generator::encode(const std::vector<const std::vector<int32_t>*>& sources) {
  size_t longest = 0;
  for (const auto* source : sources) longest = std::max(longest, source->size());
  EncodeStep& step = *std::find_if(encoders_.begin(), encoders_.end(), [&](const EncodeStep& s) {
    return s.positions() >= static_cast<int64_t>(longest);
  });
  const auto batch = static_cast<size_t>(step.batch());
  for (size_t group = (sources.size() - 1) / batch + 1; group-- > 0;) {
    const size_t first = group * batch, count = std::min(batch, sources.size() - first);
    step.run({sources.data() + first, count});
    for (size_t i = 0; i < count; ++i)
      cache_->copy_row(i, first + i, 0, static_cast<int64_t>(sources[first + i]->size()));
  }
}

// The smallest batch that fits the rows; within it the fewest positions that suffice, or the most
// available.
GenerateStep& Generator::step_for(size_t rows, size_t positions) {
  GenerateStep* best = nullptr;
  for (GenerateStep& step : steps_) {
    if (step.batch() < static_cast<int64_t>(rows)) break;
    const bool enough = best && best->positions() >= static_cast<int64_t>(positions);
    if (!best || step.batch() < best->batch() || !enough) best = &step;
  }
  return *best;
}

void Generator::check_prompts(const std::vector<std::vector<int32_t>>& prompts) const {
  for (size_t i = 0; i < prompts.size(); ++i) {
    const std::vector<int32_t>& p = prompts[i];
    require(!p.empty(), "prompt {} is empty", i);
    if (encoders_.empty()) {
      require(p.size() <= static_cast<size_t>(options_.max_positions),
              "prompt {} has {} tokens, wanted at most the {} available positions", i, p.size(),
              options_.max_positions);
    } else {
      require(p.size() <= static_cast<size_t>(options_.max_source_positions),
              "prompt {} has {} tokens, wanted at most the {} available positions of a source", i,
              p.size(), options_.max_source_positions);
    }
    for (const int32_t id : p) {
      require(id >= 0 && id < model_.vocab_size(),
              "prompt {} holds the token id {}, but the model has {} ids", i, id,
              model_.vocab_size());
    }
  }
}

std::vector<std::vector<int32_t>> Generator::generate(
    const std::vector<std::vector<int32_t>>& prompts, const SampleOptions& options,
    const GenerateEvents& events) {
  check_options(options);
  check_prompts(prompts);
  return Run(*this, prompts, options, events).results();
}

}  // namespace weft
