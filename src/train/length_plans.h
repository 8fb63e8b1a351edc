// train/length_plans.h: a loss plan for every length that batches are padded to.
//
// `pad` and `pack` have one length, `dynamic` a few (bucket_length). The plan of a shorter length
// is created with its first batch, and shares the memory of the longest one: the arena, `weft plan`
// and the finish list know only the longest. Collectives over the data axis are of parameters and
// gradients, the same in every plan. Those over the tensor axis depend on the length, which is the
// same on all ranks of a tensor group in a pass (compare_batches).
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
  using Trace = std::function<Graph(int64_t seq_length)>;
  struct Place {  // where all plans run; must outlive them
    const ArenaLayout& layout;
    const Arena& arena;
    ThreadPool* pool;
    Mesh mesh;
  };
  // `longest` must outlive it, and what `trace` refers to.
  LengthPlans(const Plan& longest, int64_t seq_length, Trace trace, const Place& place,
              const Passes& passes);

  Executor& longest() { return *longest_; }
  // Runs all passes, each with the plan of its length. Allocates for a new length. is_stopped:
  // polled before each pass, and in passes with collectives (Executor::ask_stop); false where it
  // ended the batch before a pass, StopError in one.
  using IsStopped = std::function<bool()>;
  bool run(const Batch& batch, const IsStopped& is_stopped = nullptr);
  // Passes may be abandoned midway (Executor::allow_stop).
  void allow_stop();
  // The sum of the token losses of this rank's rows of the last batch. Waits for the device.
  ExactSum losses() const { return longest_->read<ExactSum>(names::kLossSum); }
  size_t num_lengths() const { return by_length_.size(); }

 private:
  struct Made {
    std::unique_ptr<Plan> plan;  // null: the longest, which is not owned
    std::unique_ptr<Executor> executor;
    std::unique_ptr<BatchRunner> runner;
  };
  Made make(const Plan& plan) const;
  Made& of_length(int64_t seq_length);

  const Plan& plan_;
  Trace trace_;
  Place place_;
  Passes passes_;
  bool may_stop_ = false;
  std::map<int64_t, Made> by_length_;
  Executor* longest_;
};

}  // namespace weft
