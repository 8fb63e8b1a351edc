// checkpoint/match_config.cpp: required names against present ones.
#include "checkpoint/match_config.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "checkpoint/load.h"
#include "model/model.h"
#include "model/stored.h"

namespace weft {
namespace {

using Names = std::set<std::string>;

// Empty: the architecture is not known.
std::vector<ParameterSpec> required_parameters(const Json& config) {
  try {
    return make_model(config, {})->parameters();
  } catch (const UserError&) {
    return {};
  }
}

bool has_all(const Names& present, const std::string& before,
             const std::vector<FileTensor>& required) {
  return std::all_of(required.begin(), required.end(), [&](const FileTensor& tensor) {
    return present.contains(before + tensor.name);
  });
}

void keep_below(const std::string& before, LogicalModel& model) {
  std::erase_if(model.weights, [&](const LogicalTensor& t) { return !t.name.starts_with(before); });
  for (LogicalTensor& t : model.weights) t.name.erase(0, before.size());
}

}  // namespace

void match_config(LogicalModel& model) {
  const bool is_own = model.kind == LogicalModel::Kind::kCheckpoint;
  if (is_own || model.config.is_null()) return;
  require(!model.weights.empty(), "{} has no tensors", model.path.string());
  const std::vector<ParameterSpec> parameters = required_parameters(model.config);
  if (parameters.empty()) return;
  const std::vector<FileTensor> required = file_tensors(parameters);
  Names present;
  for (const LogicalTensor& t : model.weights) present.insert(t.name);
  for (const char* key : {"", "model.", "module.", "state_dict.", "model_state_dict."}) {
    if (!has_all(present, key, required)) continue;
    if (*key != 0) keep_below(key, model);
    return;
  }
  for (const ParameterSpec& spec : parameters) static_cast<void>(find_parameter(model, spec));
}

}  // namespace weft
