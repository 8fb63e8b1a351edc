// optim/optimizer_config.h: the keys of train.* that optimizers read.
#pragma once

#include <string>
#include <vector>

namespace weft {

// Which of these an optimizer reads is declared in Optimizer::keys.
struct OptimizerConfig {
  std::string name = "adamw";  // train.optimizer
  std::vector<double> betas = {0.9, 0.999};
  double eps = 1e-8, weight_decay = 0.01, momentum = 0;
  bool decay_all = true;  // false: norms and biases (one dimension) do not decay
};

}  // namespace weft
