// train/same_optimizer.cpp: the name in state.json, and the suffixes of the states.
#include "train/same_optimizer.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <string>

#include "base/error.h"
#include "optim/optimizer.h"

namespace weft {
namespace {

using Suffixes = std::set<std::string>;

Suffixes suffixes_of(const StoredTensors& tensors) {
  Suffixes found;
  for (const auto& [name, tensor] : tensors) {
    const size_t at = name.rfind('#');
    if (at != std::string::npos && !name.ends_with(kMaster)) found.insert(name.substr(at));
  }
  return found;
}

bool trains_something(const Graph& graph) {
  const std::vector<Ref> parameters = graph.of_kind(ValueKind::kParameter);
  return std::any_of(parameters.begin(), parameters.end(), [&](Ref r) { return !graph[r].frozen; });
}

std::string words(const Suffixes& suffixes) {
  return suffixes.empty() ? "no states" : fmt::format("the states {}", fmt::join(suffixes, ", "));
}

}  // namespace

void check_same_optimizer(const CheckpointReader& checkpoint, const OptimizerConfig& config,
                          const Graph& graph) {
  const std::string folder = checkpoint.folder().string();
  const Json* stored = checkpoint.state().find("optimizer");
  const std::string other = fmt::format(
      "; or train its weights in a new run: weft export {} DIR, then --set model.path=DIR --set "
      "model.init=pretrained",
      folder);
  if (stored && stored->as_string() != config.name) {
    throw UserError(fmt::format("{} was written with train.optimizer: {}, but the run has {}",
                                folder, stored->as_string(), config.name),
                    fmt::format("set train.optimizer to {}{}", stored->as_string(), other));
  }
  const Optimizer& optimizer = find_optimizer(config.name);
  Suffixes wanted;
  for (const StateSpec& state : optimizer.states(config)) {
    if (trains_something(graph)) wanted.insert(state.suffix);
  }
  const Suffixes kept = suffixes_of(checkpoint.tensors());
  if (kept == wanted) return;
  throw UserError(
      fmt::format("{} has {}, but train.optimizer: {} needs {}", folder, words(kept), config.name,
                  words(wanted)),
      fmt::format("set train.optimizer and its keys ({}) as they were when it was written{}",
                  fmt::join(optimizer.keys(), ", "), other));
}

}  // namespace weft
