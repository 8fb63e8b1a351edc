// generate/generator.h: continues prompts in batches, with a KV cache.
//
// Rows (a prompt and its continuation) occupy slots 0, 1, 2 ... of the cache without gaps. A step
// feeds each row its unseen tokens: many for a new prompt, then one at a time. When a row ends, the
// last row moves into its slot, so that later steps run a smaller plan; when a quarter of the slots
// is free, waiting prompts are inserted at the front, where a prefill step can run over them alone.
// A row's result does not depend on its neighbours.
//
// The prompt of an encoder-decoder is its source: it is encoded once, when it enters, into caches
// that every step of the row reads, and the row's first token is the model's start token.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "base/threads.h"
#include "exec/executor.h"
#include "generate/plans.h"
#include "generate/sample.h"
#include "generate/step.h"

namespace weft {

// Callbacks in the thread of generate(); each may be empty.
struct GenerateEvents {
  std::function<void(size_t prompt, int32_t id)> on_token;
  std::function<void(size_t prompt, const std::vector<int32_t>& ids)> on_end;
  // Whether a row ends with this token, which is no stop id: after on_token. The same on all ranks.
  std::function<bool(size_t prompt, int32_t id)> ends;
};

// One of several ranks, all of which make the same calls. Rank 0 of the world samples.
struct GeneratorRanks {
  Mesh mesh = {};
  Comm* world = nullptr;  // null: alone
};

class Generator {
 public:
  // Fills the memory of one parameter: data holds num_elements(spec.shape) of dtype. Called from
  // several threads.
  using LoadParameter = std::function<void(const ParameterSpec& spec, Dtype dtype, void* data)>;

  // With its own weights, filled by `load`. The model and the pool must outlive the generator.
  Generator(const Model& model, const GenerateOptions& options, const Kernels& kernels,
            ThreadPool* pool, const LoadParameter& load, Device* device = &host_device());
  // The same with existing plans, whose memory needs were checked before.
  Generator(const Model& model, GeneratePlans plans, ThreadPool* pool, const LoadParameter& load,
            Device* device);
  // Shares the weights of another arena, to whose layout every plan was added. What it refers to
  // must outlive it.
  Generator(const Model& model, const GeneratePlans& plans, const ArenaLayout& layout,
            const Arena& arena, ThreadPool* pool, const GeneratorRanks& ranks = {});

  // Reloads all parameters, for instance after a training step. With one rank.
  void load_parameters(const LoadParameter& load);
  // Whose graphs have all parameters that this rank holds.
  std::vector<const Executor*> executors() const;

  // The continuation of each prompt, without the prompt but including a final stop token. At most
  // max_new_tokens, or as many as positions are left (with a warning). UserError where a prompt is
  // empty, too long, or contains an id outside the vocabulary.
  std::vector<std::vector<int32_t>> generate(const std::vector<std::vector<int32_t>>& prompts,
                                             const SampleOptions& options,
                                             const GenerateEvents& events = {});

  int64_t max_positions() const { return options_.max_positions; }

 private:
  class Run;  // one call of generate()
  void bind(const GeneratePlans& plans, const ArenaLayout& layout, const Arena& arena);
  GenerateStep& step_for(size_t rows, size_t positions);
  // Encodes the sources of the first slots.
  void encode(const std::vector<const std::vector<int32_t>*>& sources);
  void check_prompts(const std::vector<std::vector<int32_t>>& prompts) const;

  const Model& model_;
  ThreadPool* pool_;
  GeneratorRanks ranks_;
  GenerateOptions options_;
  std::unique_ptr<GeneratePlans> own_plans_;
  std::unique_ptr<Arena> own_arena_;
  std::unique_ptr<HostLogits> host_logits_;
  std::deque<GenerateStep> steps_;  // in the order of the plans
  std::deque<EncodeStep> encoders_;
  std::unique_ptr<KeyValueCache> cache_;
  std::vector<std::byte*> parameters_;  // in the order of the model's
};

}  // namespace weft
