// optim/optimizer.h: what an optimizer declares: its states, its numbers per step, its update.
//
// Everything but the formula uses this declaration: the nodes of the update (optim/updates.h), and
// through them the memory plan, ZeRO's shards, checkpoints and hashes. An optimizer is one
// declaration (adamw.cpp) and the operation of its update (graph/ops, exec/ops, kernel);
// docs/add_an_operation.md lists the files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "graph/op_rule.h"
#include "kernel/optimizer_scalars.h"
#include "optim/optimizer_config.h"
#include "tensor/shape.h"

namespace weft {

struct StateSpec {
  const char* suffix;  // "#m", after the parameter's name
  // kLikeParameter: as the update keeps the parameter, which is fp32 where it has a master.
  enum class Type { kLikeParameter, kF32 } type = Type::kLikeParameter;
  // This many consecutive elements share one element of the state. Must divide 256 (kNormCell), at
  // whose multiples ZeRO cuts.
  int64_t block = 1;
};

struct Optimizer {
  const char* name;      // train.optimizer
  const OpRule* update;  // graph/update_rule.h
  std::vector<StateSpec> (*states)(const OptimizerConfig&);
  // Of the update with this number, from 1, at the rate lr.
  OptimizerScalars (*scalars)(const OptimizerConfig&, double lr, int64_t update);
  // Keys that only some optimizers read, and this one does: "train.betas".
  std::vector<std::string> (*keys)();
};

const std::vector<const Optimizer*>& all_optimizers();
const Optimizer& find_optimizer(std::string_view name);  // BugError where there is none

// The shape of a state of a tensor of this shape: blocks run along the last dimension where they
// divide it, else the state is flat.
Shape state_shape(const Shape& parameter, int64_t block);

}  // namespace weft
