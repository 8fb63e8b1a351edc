// exec/executor.h: a plan bound to memory and kernels: two lists of calls, run for every step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/threads.h"
#include "exec/lane.h"
#include "exec/mesh.h"
#include "exec/plan.h"

namespace weft {

// One piece of memory, taken once: anonymous, or given by someone who outlives the arena (memory
// that other ranks can read).
class Arena {
 public:
  explicit Arena(int64_t bytes);
  Arena(void* memory, int64_t bytes)
      : data_(static_cast<std::byte*>(memory)), bytes_(bytes), is_given_(true) {}
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
  bool is_given_ = false;
};

// What changes from step to step.
struct StepScalars {
  int pass = 0;  // 0: gradients are stored, later ones added
  bool is_last_pass = true;
  int64_t target_tokens = 0;  // N of the whole global batch
  int64_t update = 1;         // t of AdamW, from 1
  double lr = 0, clip_norm = 0, beta1 = 0, beta2 = 0, eps = 0, weight_decay = 0;
};

class Executor {
 public:
  // The plan must outlive the executor, and the mesh's groups too.
  Executor(const Plan& plan, const ArenaLayout& layout, const Arena& arena, ThreadPool* pool,
           const Mesh& mesh = {});
  Executor(const Executor&) = delete;  // the bound calls point into it
  Executor& operator=(const Executor&) = delete;

  std::byte* data(Ref r) const { return data_[static_cast<size_t>(r.id)]; }
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
  struct List {
    const std::vector<Node>* nodes;
    const Schedule* schedule;
    std::vector<Call> calls;
    std::vector<std::function<void()>> beside;  // those of the other lane, with their scalars
  };
  void find_places(const ArenaLayout& layout, const Arena& arena);
  void bind_list(const std::vector<Node>& nodes, const Schedule& schedule, List* list);
  Call bind(const Node& node);
  Call bind_products(const Node& node);
  Call bind_scalar(const Node& node);
  Call bind_gradient(const Node& node);
  bool adds_to_earlier_passes(const Node& node) const;
  void run(List& list, const StepScalars& scalars);

  const Plan& plan_;
  const Kernels& kernels_;
  Mesh mesh_;
  Context context_;
  std::vector<std::byte*> data_;
  List pass_, finish_;
  StepScalars scalars_;  // of the list that is running, for the other lane
  std::vector<int64_t> calls_;
  Lane lane_;  // last: its thread ends before what it uses
};

}  // namespace weft
