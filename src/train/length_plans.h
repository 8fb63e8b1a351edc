// train/length_plans.h: a loss plan for all lengths, of target and source, that batches are padded
// to.
//
// `pad` and `pack` have one length, `dynamic` a few (bucket_length), and pairs of them for an
// encoder-decoder. The plan of shorter lengths is created with its first batch, and shares the
// memory of the longest one: the arena, `weft plan` and the finish list know only the longest.
// Collectives over the data axis are of parameters and gradients, the same in every plan. Those
// over the tensor axis depend on the lengths, which are the same on all ranks of a tensor group in
// a pass (compare_batches).
#pragma once

#include <functional>
#include <map>
#include <memory>

#include "data/batches.h"
#include "exec/executor.h"
#include "tensor/names.h"
#include "train/batch_runner.h"

namespace weft {

class LengthPlans {
 public:
  using Trace = std::function<Graph(const Lengths&)>;
  struct Place {  // where all plans run; must outlive them
    const ArenaLayout& layout;
    const Arena& arena;
    ThreadPool* pool;
    Mesh mesh;
  };
  // `longest` must outlive it, and what `trace` refers to.
  LengthPlans(const Plan& longest, const Lengths& lengths, Trace trace, const Place& place,
              const Passes& passes);

  Executor& longest() { return *longest_; }
  // Runs all passes, each with the plan of its length. Allocates for a new length. is_stopped:
  // polled before each pass, and in passes with collectives (Executor::ask_stop); false where it
  // ended the batch before a pass, StopError in one.
  using IsStopped = std::function<bool()>;
  bool run(const Batch& batch, const IsStopped& is_stopped = nullptr);
  // Passes may be abandoned midway (Executor::allow_stop).
  void allow_stop();
  void drain();  // after passes that were left by an exception: Executor::drain
  // The sum of the token losses of this rank's rows of the last batch. Waits for the device.
  ExactSum losses() const { return longest_->read<ExactSum>(names::kLossSum); }
  size_t num_lengths() const { return by_lengths_.size(); }

 private:
  struct Made {
    std::unique_ptr<Plan> plan;  // null: the longest, which is not owned
    std::unique_ptr<Executor> executor;
    std::unique_ptr<BatchRunner> runner;
  };
  Made make(const Plan& plan) const;
  Made& of_lengths(const Lengths& lengths);

  const Plan& plan_;
  Trace trace_;
  Place place_;
  Passes passes_;
  bool may_stop_ = false;
  std::map<Lengths, Made> by_lengths_;
  Executor* longest_;
};

}  // namespace weft
