// optim/sgd.cpp: one state, the momentum; none where it is 0.
#include "optim/sgd.h"

#include "graph/ops/sgd.h"
#include "kernel/update_args.h"

namespace weft {
namespace {

std::vector<StateSpec> sgd_states(const OptimizerConfig& c) {
  if (c.momentum == 0) return {};
  return {{"#momentum"}};
}

// The first update finds a momentum of 0, which torch does not have then: the sum is the same.
OptimizerScalars sgd_scalars(const OptimizerConfig& c, double lr, int64_t) {
  return OptimizerScalars::from(
      SgdScalars{.lr = lr, .momentum = c.momentum, .weight_decay = c.weight_decay});
}

std::vector<std::string> sgd_keys() { return {"train.momentum"}; }

}  // namespace

const Optimizer kSgd = {"sgd", &kSgdOp, sgd_states, sgd_scalars, sgd_keys};

}  // namespace weft
