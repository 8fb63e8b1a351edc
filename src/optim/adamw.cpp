// optim/adamw.cpp: two moments per element; both are corrected for their start at 0.
#include "optim/adamw.h"

#include <cmath>

#include "graph/ops/adamw.h"
#include "kernel/update_args.h"

namespace weft {
namespace {

std::vector<StateSpec> adamw_states(const OptimizerConfig&) { return {{"#m"}, {"#v"}}; }

OptimizerScalars adamw_scalars(const OptimizerConfig& c, double lr, int64_t update) {
  const auto t = static_cast<double>(update);
  const double beta1 = c.betas[0], beta2 = c.betas[1];
  return OptimizerScalars::from(AdamwScalars{.lr = lr,
                                             .beta1 = beta1,
                                             .beta2 = beta2,
                                             .eps = c.eps,
                                             .weight_decay = c.weight_decay,
                                             .bias1 = 1 - std::pow(beta1, t),
                                             .bias2 = 1 - std::pow(beta2, t)});
}

std::vector<std::string> adamw_keys() { return {"train.betas", "train.eps"}; }

}  // namespace

const Optimizer kAdamw = {"adamw", &kAdamwOp, adamw_states, adamw_scalars, adamw_keys};

}  // namespace weft
