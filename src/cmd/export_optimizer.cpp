// cmd/export_optimizer.cpp: state.json's run file gives the hyperparameters.
#include "cmd/export_optimizer.h"

#include "base/error.h"
#include "base/yaml.h"
#include "checkpoint/checkpoint.h"
#include "config/run_config.h"

namespace weft {
namespace {

TrainConfig parse_train(const std::string& run, const std::string& what) {
  RunConfig config;
  OptionTable table;
  table.take_not_built();  // another build may have written it
  bind_options(&table, &config);
  std::vector<std::string> complaints;
  table.read(parse_yaml(run, what), what, complaints);
  refuse(complaints);
  return config.train;
}

// Of the next step; the base rate where only the data tells how many steps the run has.
double next_rate(const TrainConfig& train, int64_t step) {
  if (!train.steps && schedule_needs_total(train.schedule)) return train.schedule.lr;
  const int64_t total = train.steps.value_or(step + 1);
  return learning_rate(train.schedule, std::min(step, std::max<int64_t>(total - 1, 0)), total);
}

}  // namespace

std::optional<TorchOptimizer> stored_optimizer(const LogicalModel& model) {
  if (model.kind != LogicalModel::Kind::kCheckpoint) return std::nullopt;
  const Json state = CheckpointReader(model.path).state();
  const Json* run = state.find("run");
  const Json* updates = state.find("updates");
  if (!run || !updates) return std::nullopt;
  const TrainConfig train = parse_train(run->as_string(), model.path.string());
  TorchOptimizer o;
  o.name = train.optimizer.name;
  o.step = updates->as_int();
  o.lr = next_rate(train, o.step);
  o.initial_lr = train.schedule.lr;
  o.beta1 = train.optimizer.betas.at(0);
  o.beta2 = train.optimizer.betas.at(1);
  o.eps = train.optimizer.eps;
  o.weight_decay = train.optimizer.weight_decay;
  o.momentum = train.optimizer.momentum;
  o.decay_all = train.optimizer.decay_all;
  return o;
}

}  // namespace weft
