// generate/plans.h: the model traced for generation, once per batch size.
//
// A step feeds T new positions of each of B rows. One plan would do, but most steps need less than
// the largest: T is 1 after the prompts, and B shrinks as rows end. So there is a small grid of
// plans over the same weights and the same cache: those of fewer rows use the first rows of the
// cache.
#pragma once

#include <vector>

#include "exec/plan.h"
#include "model/model.h"

namespace weft {

struct GenerateOptions {
  int64_t max_batch = 64;     // rows per batch
  int64_t max_positions = 0;  // of a row, prompt and continuation together; 0: the model's
  Dtype compute = Dtype::kF32;
};

struct GeneratePlan {
  int64_t batch, positions;  // B, T
  Plan plan;
};

struct GeneratePlans {
  GenerateOptions options;          // max_positions is set
  std::vector<GeneratePlan> plans;  // the largest batch first; of one batch the smallest T first
};

// Values that are not weights are named generate.NAME, so that the plans can share an arena with
// those of training: add them to its layout, and they use its weights in place.
inline constexpr const char* kGeneratePrefix = "generate.";

// UserError where the model has fewer than max_positions.
GeneratePlans make_generate_plans(const Model& model, const GenerateOptions& options,
                                  const Kernels& kernels, int num_threads);

// The layout of an arena for these plans only.
ArenaLayout layout_of(const GeneratePlans& plans);

}  // namespace weft
