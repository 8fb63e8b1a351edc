// exec/executor.h: a plan bound to memory and kernels: two lists of calls, run for every step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/threads.h"
#include "exec/plan.h"

namespace weft {

// One piece of anonymous memory, taken once.
class Arena {
 public:
  explicit Arena(int64_t bytes);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
};

// What changes from step to step.
struct StepScalars {
  int pass = 0;               // 0: gradients are stored, later ones added
  int64_t target_tokens = 0;  // N of the whole global batch
  int64_t update = 1;         // t of AdamW, from 1
  double lr = 0, clip_norm = 0, beta1 = 0, beta2 = 0, eps = 0, weight_decay = 0;
};

class Executor {
 public:
  // The plan must outlive the executor.
  Executor(const Plan& plan, const ArenaLayout& layout, const Arena& arena, ThreadPool* pool);
  Executor(const Executor&) = delete;  // the bound calls point into it
  Executor& operator=(const Executor&) = delete;

  // The memory of a persistent value; null where the plan has none of that name.
  std::byte* find(const std::string& name) const;
  template <typename T>
  T* at(const std::string& name) const {
    return reinterpret_cast<T*>(find(name));
  }
  const Plan& plan() const { return plan_; }

  void run_pass(const StepScalars& scalars);
  void run_finish(const StepScalars& scalars);

  // Calls made so far of each op, in order of the enum: counted for tests of what a rank does.
  const std::vector<int64_t>& calls() const { return calls_; }

 private:
  using Call = std::function<void(const StepScalars&)>;
  Call bind(const Node& node);
  Call bind_scalar(const Node& node);
  void run(const std::vector<Node>& nodes, const std::vector<Call>& list,
           const StepScalars& scalars);

  const Plan& plan_;
  const Kernels& kernels_;
  Context context_;
  std::vector<std::byte*> data_;
  std::vector<Call> pass_, finish_;
  std::vector<int64_t> calls_;
};

}  // namespace weft
