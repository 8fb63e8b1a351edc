// generate/plans.h: the model traced for generation, once per batch size.
//
// A step feeds T new positions of each of B rows. One plan would do, but most steps need less than
// the largest: T is 1 after the prompts, and B shrinks as rows end. So there is a small grid of
// plans over the same weights and the same cache: those of fewer rows use the first rows of the
// cache.
#pragma once

#include <optional>
#include <vector>

#include "exec/plan.h"
#include "model/model.h"
#include "parallel/data_parallel.h"
#include "parallel/tensor_parallel.h"

namespace weft {

// What one of several ranks holds of the model (planning/layout.h); by default all of it. Heads,
// channels and ids are cut over the tensor axis, and with zero3 weights are spread over the data
// axis, whose ranks all do the same otherwise: in buckets of their own, or in those of training.
struct GenerateRank {
  Cuts cuts;
  TensorParallel tensor = {};
  DataParallel data = {};
  std::optional<BucketPlaces> buckets = {};
};

struct GenerateOptions {
  int64_t max_batch = 64;  // rows per batch
  // Of a row, prompt and continuation together; 0: the model's. Of an encoder-decoder: of the
  // continuation with its start token.
  int64_t max_positions = 0;
  Dtype compute = Dtype::kF32;
  GenerateRank rank = {};
  int64_t max_source_positions = 0;  // of an encoder-decoder's prompt; 0: max_positions
};

struct GeneratePlan {
  int64_t batch, positions;  // B, T
  Plan plan;
};

struct GeneratePlans {
  GenerateOptions options;          // max_positions is set
  std::vector<GeneratePlan> plans;  // the largest batch first; of one batch the smallest T first
  // Of an encoder-decoder: its encoder over sources of up to `positions`, the shortest first. Fewer
  // rows than slots: their caches are then copied.
  std::vector<GeneratePlan> encode;
};

// Values that are not weights are named generate.NAME, so that the plans can share an arena with
// those of training: add them to its layout, and they use its weights in place.
inline constexpr const char* kGeneratePrefix = "generate.";

// For trace_generate.
TraceOptions trace_options(const GenerateOptions& options, int64_t batch, int64_t positions);
// Between the prefix and the name of a plan's input.
std::string plan_name(int64_t batch, int64_t positions, bool is_encoder);

// UserError where the model has fewer than max_positions.
GeneratePlans make_generate_plans(const Model& model, const GenerateOptions& options,
                                  const Kernels& kernels, int num_threads);

// The layout of an arena for these plans only.
ArenaLayout layout_of(const GeneratePlans& plans);

}  // namespace weft
