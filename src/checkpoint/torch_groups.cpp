// checkpoint/torch_groups.cpp: groups by decay, states by suffix.
#include "checkpoint/torch_groups.h"

#include <algorithm>

namespace weft {
namespace {

constexpr std::pair<const char*, const char*> kStates[] = {
    {"#m", "exp_avg"}, {"#v", "exp_avg_sq"}, {"#momentum", "momentum_buffer"}};

const LogicalTensor* find_state(const LogicalModel& model, const std::string& name) {
  const auto found =
      std::lower_bound(model.states.begin(), model.states.end(), name,
                       [](const LogicalTensor& t, const std::string& n) { return t.name < n; });
  return found != model.states.end() && found->name == name ? &*found : nullptr;
}

}  // namespace

std::vector<std::pair<std::string, const LogicalTensor*>> states_of(const LogicalModel& model,
                                                                    const std::string& weight) {
  std::vector<std::pair<std::string, const LogicalTensor*>> out;
  for (const auto& [suffix, name] : kStates) {
    if (const LogicalTensor* t = find_state(model, weight + suffix)) out.emplace_back(name, t);
  }
  return out;
}

std::vector<ParamGroup> param_groups(const LogicalModel& model, const TorchOptimizer& optimizer) {
  std::vector<ParamGroup> groups = {{{}, optimizer.weight_decay}, {{}, 0}};
  for (const LogicalTensor& t : model.weights) {
    // Without states at all (SGD without momentum) every weight may be trained.
    if (!model.states.empty() && states_of(model, t.name).empty()) continue;
    const bool decays = optimizer.decay_all || t.shape.size() > 1;
    groups[decays ? 0 : 1].names.push_back(t.name);
  }
  std::erase_if(groups, [](const ParamGroup& g) { return g.names.empty(); });
  return groups;
}

bool has_moments(const TorchOptimizer& optimizer) { return optimizer.name != "sgd"; }

std::vector<std::pair<std::string, AppendValue>> hyperparameters(const TorchOptimizer& o,
                                                                 const ParamGroup& group) {
  const auto real = [](double value) { return [value](PickleWriter& out) { out.real(value); }; };
  std::vector<std::pair<std::string, AppendValue>> list = {
      {"lr", real(o.lr)}, {"weight_decay", real(group.weight_decay)}};
  if (!has_moments(o)) {
    list.emplace_back("momentum", real(o.momentum));
    list.emplace_back("dampening", real(0));
    list.emplace_back("nesterov", [](PickleWriter& out) { out.boolean(false); });
    return list;
  }
  list.emplace_back("eps", real(o.eps));
  list.emplace_back("betas", [o](PickleWriter& out) {
    out.tuple([&] {
      out.real(o.beta1);
      out.real(o.beta2);
    });
  });
  return list;
}

}  // namespace weft
