// planning/fault.cpp: parses the variable, and rejects faults without effect.
#include "planning/fault.h"

#include <fnmatch.h>

#include <algorithm>
#include <cstdlib>

#include "base/error.h"
#include "base/log.h"
#include "base/suggest.h"
#include "graph/ops/grad_norm.h"
#include "model/stored.h"

namespace weft {
namespace {

const std::vector<std::string> kKinds = {"flip", "swap", "double", "norm", "copy"};

std::vector<std::string> split_words(const std::string& text) {
  std::vector<std::string> words(1);
  for (const char c : text) {
    if (c == ',') {
      words.emplace_back();
    } else {
      words.back() += c;
    }
  }
  return words;
}

int64_t number_of(const std::string& word, const std::string& value) {
  require(!value.empty() && value.size() < 10 &&
              value.find_first_not_of("0123456789") == std::string::npos,
          "{}: \"{}\" needs a number", kFaultVariable, word);
  return std::stoll(value);
}

bool is_frozen(const std::string& name, const std::vector<std::string>& patterns) {
  return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) {
    return ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0;  // as freeze_parameters
  });
}

// For vectors: why `double` would not change this one.
std::string why_not_doubled(const ParameterSpec& p, const std::vector<std::string>& freeze) {
  if (p.shape.size() != 1) return "";
  if (p.cut.dim >= 0) return p.name + " is cut over tensor-parallel ranks";
  return is_frozen(stored_as(p).name, freeze) ? p.name + " is frozen" : "";
}

}  // namespace

std::optional<Fault> Fault::from_environment() {
  const char* given = std::getenv(kFaultVariable);
  if (!given || !*given) return std::nullopt;
  Fault fault;
  fault.words = given;
  const std::vector<std::string> parts = split_words(given);
  const auto found = std::find(kKinds.begin(), kKinds.end(), parts[0]);
  require(found != kKinds.end(), "{}: no fault \"{}\"{}", kFaultVariable, parts[0],
          did_you_mean(parts[0], kKinds));
  fault.kind = static_cast<Kind>(found - kKinds.begin());
  for (size_t i = 1; i < parts.size(); ++i) {
    const size_t equals = parts[i].find('=');
    const std::string key = parts[i].substr(0, equals);
    const std::string value = equals == std::string::npos ? "" : parts[i].substr(equals + 1);
    if (key == "tensor") {
      fault.tensor = value;
    } else if (key == "rank") {
      fault.rank = static_cast<int>(number_of(parts[i], value));
    } else {
      require(key == "step", "{}: \"{}\"; wanted: step, rank or tensor", kFaultVariable, parts[i]);
      fault.step = number_of(parts[i], value);
    }
  }
  return fault;
}

void Fault::check(const RunConfig& config, const Layout& layout, const Model* model) const {
  require(rank < layout.num_ranks(), "{}={}: there is no rank {} of {}", kFaultVariable, words,
          rank, layout.num_ranks());
  const bool is_zero3 = layout.dp > 1 && layout.shard == Shard::kZero3;
  require(kind != Kind::kCopy || (layout.dp > 1 && !is_zero3) || layout.tp > 1,
          "{}={}: no rank of {} holds copies", kFaultVariable, words, describe(layout));
  require(kind != Kind::kSwap || (layout.is_exact && config.num_passes() >= 3),
          "{}={}: needs exact mode and three passes per rank", kFaultVariable, words);
  require(kind != Kind::kFlip || layout.is_exact,
          "{}={}: one bit is less than fast-mode layouts differ by: set parallel.mode to exact",
          kFaultVariable, words);
  require(kind != Kind::kNorm || tensor.empty(), "{}={}: does not accept a tensor", kFaultVariable,
          words);
  require(acts_in_every_step() || !config.train.steps || step <= *config.train.steps,
          "{}={}: the run has {} steps, so the fault would have no effect", kFaultVariable, words,
          config.train.steps.value_or(0));
  require(step > 0, "{}={}: steps count from 1", kFaultVariable, words);
  if (model && (!tensor.empty() || kind == Kind::kDouble)) check_tensor(*model, config);
}

void Fault::check_tensor(const Model& model, const RunConfig& config) const {
  std::vector<std::string> names;
  for (const ParameterSpec& p : model.parameters()) {
    if (kind == Kind::kDouble) {
      const std::string why = why_not_doubled(p, config.model.freeze);
      require(why.empty() || p.name != tensor, "{}={}: {}, so the fault would have no effect",
              kFaultVariable, words, why);
      if (!why.empty() || p.shape.size() != 1) continue;
      if (tensor.empty()) return;  // the first of them
    }
    if (p.name == tensor) return;
    names.push_back(p.name);
  }
  require(!tensor.empty(), "{}={}: the model has no vector that is trained and on all ranks",
          kFaultVariable, words);
  const std::string near = did_you_mean(tensor, names);
  throw UserError(fmt::format("{}={}: the model has no {} \"{}\"{}", kFaultVariable, words,
                              kind == Kind::kDouble ? "vector" : "parameter", tensor, near),
                  near.empty() ? "`weft inspect` on the model's folder lists the names" : "");
}

void Fault::check_fired(int64_t first, int64_t last) const {
  if (acts_in_every_step() || (step >= first && step <= last)) return;
  throw RunError(fmt::format("{}={}: this start ran steps {} to {}, so the fault had no effect",
                             kFaultVariable, words, first, last),
                 "name a step that is run");
}

void Fault::warn() const {
  log_warning("{}={}: this run is deliberately wrong", kFaultVariable, words);
}

void Fault::change(Graph* graph, int on_rank) const {
  if (kind != Kind::kNorm || on_rank != rank) return;
  for (Node& node : graph->finish) {
    if (node.op != &kNormOp) continue;
    ensure(!node.inputs.empty(), "a norm without inputs");
    node.inputs.push_back(node.inputs[0]);
  }
}

}  // namespace weft
