// checkpoint/torch_groups.h: which weights torch's optimizer updates, in which groups, with which
// states.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/export_torch.h"
#include "io/pickle_writer.h"

namespace weft {

struct ParamGroup {
  std::vector<std::string> names;
  double weight_decay = 0;
};
// One; two where tensors of one dim do not decay and there are both kinds. Frozen weights, which
// have no states, are in none.
std::vector<ParamGroup> param_groups(const LogicalModel& model, const TorchOptimizer& optimizer);

// The states of a weight under torch's names: exp_avg, exp_avg_sq; momentum_buffer.
std::vector<std::pair<std::string, const LogicalTensor*>> states_of(const LogicalModel& model,
                                                                    const std::string& weight);

// Whether torch's optimizer keeps moments, and with them a count of steps for each tensor; else it
// is the one of momentum_buffer.
bool has_moments(const TorchOptimizer& optimizer);

// The hyperparameters of a group by name, each with what appends its value.
using AppendValue = std::function<void(PickleWriter& out)>;
std::vector<std::pair<std::string, AppendValue>> hyperparameters(const TorchOptimizer& optimizer,
                                                                 const ParamGroup& group);

}  // namespace weft
