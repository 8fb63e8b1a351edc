// tests/engine_step.h: an engine's step from its first call to its results, and halves of one.
#pragma once

#include "tensor/names.h"
#include "train/engine.h"

namespace weft {

// Of the one rank of a layout without others.
inline Ranks* alone() {
  static Ranks ranks{Layout{}};
  return &ranks;
}

inline Engine::StepResult run_step(Engine& engine, const Batch& batch, double lr, int64_t update) {
  engine.start_passes(batch);
  engine.start_update(lr, update);
  return engine.end_step();
}

// Only the passes, on one rank: leaves its gradients.
inline LossSums run_passes(Engine& engine, const Batch& batch) {
  engine.start_passes(batch);
  return {engine.executor().read<ExactSum>(names::kLossSum), batch.target_tokens, batch.tokens,
          batch.positions};
}

// The rest of that step; returns the gradient norm.
inline double run_update(Engine& engine, double lr, int64_t update) {
  engine.start_update(lr, update);
  return engine.end_step().grad_norm;
}

}  // namespace weft
