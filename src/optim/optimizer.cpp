// optim/optimizer.cpp: the list of all optimizers.
#include "optim/optimizer.h"

#include "base/error.h"
#include "optim/adamw.h"
#include "optim/sgd.h"

namespace weft {

const std::vector<const Optimizer*>& all_optimizers() {
  static const std::vector<const Optimizer*> kAll = {&kAdamw, &kSgd};
  return kAll;
}

const Optimizer& find_optimizer(std::string_view name) {
  for (const Optimizer* optimizer : all_optimizers()) {
    if (name == optimizer->name) return *optimizer;
  }
  throw BugError(fmt::format(
      "optimizer \"{}\" is not declared: add it to all_optimizers() in optim/optimizer.cpp", name));
}

Shape state_shape(const Shape& parameter, int64_t block) {
  if (block == 1) return parameter;
  if (parameter.empty() || parameter.back() % block != 0)
    return {(num_elements(parameter) + block - 1) / block};
  Shape shape = parameter;
  shape.back() /= block;
  return shape;
}

}  // namespace weft
