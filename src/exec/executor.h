// exec/executor.h: a plan bound to memory and kernels: two lists of calls, run for every step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/threads.h"
#include "exec/lane.h"
#include "exec/mesh.h"
#include "exec/plan.h"
#include "exec/staging.h"
#include "exec/step_scalars.h"
#include "tensor/device.h"

namespace weft {

// One block of memory, allocated once: from a device, or from an owner that outlives the arena
// (host memory that other ranks can read).
class Arena {
 public:
  explicit Arena(int64_t bytes, Device* device = &host_device())
      : device_(device), data_(device->allocate(bytes)), bytes_(bytes) {}
  Arena(void* memory, int64_t bytes)
      : device_(&host_device()),
        data_(static_cast<std::byte*>(memory)),
        bytes_(bytes),
        is_given_(true) {}
  ~Arena() {
    if (!is_given_) device_->free(data_, bytes_);
  }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  Device* device() const { return device_; }

 private:
  Device* device_;
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
  bool is_given_ = false;
};

class DeviceFinish;
class DeviceLane;

class Executor {
 public:
  // The plan must outlive the executor, and the mesh's groups too.
  Executor(const Plan& plan, const ArenaLayout& layout, const Arena& arena, ThreadPool* pool,
           const Mesh& mesh = {});
  ~Executor();
  Executor(const Executor&) = delete;  // the bound calls point into it
  Executor& operator=(const Executor&) = delete;

  Device* device() const { return device_; }
  // Addresses of values in device memory; null where the plan has none of that name.
  std::byte* data(Ref r) const { return data_[static_cast<size_t>(r.id)]; }
  std::byte* find(const std::string& name) const;
  template <typename T>
  T* at(const std::string& name) const {  // on the CPU
    return reinterpret_cast<T*>(find(name));
  }
  const Plan& plan() const { return plan_; }

  // Where the host writes an input for the next pass; null where the plan has none of that name.
  // What was written for the previous pass is gone.
  template <typename T>
  T* input(const std::string& name) {
    return reinterpret_cast<T*>(find_input(name));
  }
  // Fills persistent values: fn gets host memory for a name, which is then copied.
  void fill(const std::function<void(const std::function<void*(const std::string&)>&)>& fn) const;
  // A persistent value after all work so far. Waits for the device.
  template <typename T>
  T read(const std::string& name) const {
    T value;
    read_bytes(name, &value, sizeof value);
    return value;
  }

  // On the CPU a pass ends with StopError between two nodes when a signal asks to stop
  // (base/stop.h). Where the pass has collectives a rank may not do so alone: it calls should_stop
  // (a collective with the same result on each rank) before every few of them, and continues where
  // there is none.
  using ShouldStop = std::function<bool()>;
  void allow_stop();
  void ask_stop(const ShouldStop* should_stop) { should_stop_ = should_stop; }  // null: none
  void run_pass(const StepScalars& scalars);
  void run_finish(const StepScalars& scalars);
  // After a list that was left by an exception: waits for its calls on the other lane. Captured
  // graphs are dropped: they have addresses of other ranks' memory, and all ranks must capture at
  // the same pass.
  void drain();

  // Calls so far of each operation: for tests of what a rank does.
  const std::map<Op, int64_t>& calls() const { return calls_; }

 private:
  struct List {
    const std::vector<Node>* nodes;
    const Schedule* schedule;
    std::vector<NodeCall> calls;
    std::vector<std::function<void()>> async;  // calls on the other lane, with their scalars
    // On a GPU: by the kind of run; null: run once so far.
    std::map<int, std::unique_ptr<CapturedGraph>> captured_graphs;
  };
  void find_places(const ArenaLayout& layout, const Arena& arena);
  void find_contexts(const ArenaLayout& layout, const Arena& arena);
  void bind_list(const std::vector<Node>& nodes, const Schedule& schedule, const Context* contexts,
                 List* list);
  std::byte* find_input(const std::string& name);
  void read_bytes(const std::string& name, void* to, size_t bytes) const;
  void run(List& list, const StepScalars& scalars);
  void call_all(List& list, const StepScalars& scalars);
  void check_stop(const List& list, size_t next, int* num_collectives, int num_posted);
  void count_calls(const List& list, const StepScalars& scalars);

  // On a GPU (exec/device_run.cpp).
  void prepare_device(std::byte* tables);
  void queue_all(List& list, const StepScalars& scalars);
  void send_inputs();
  void send_scalars(const StepScalars& scalars);
  void replay(List& list, const StepScalars& scalars);

  const Plan& plan_;
  const Kernels& kernels_;
  Mesh mesh_;
  Device* device_;
  const bool overlaps_;            // collectives with computation, on the CPU: WEFT_OVERLAP
  Context plain_;                  // without workspace
  Context async_context_;          // for nodes on the communication lane
  std::vector<Context> contexts_;  // by node (pass, then finish)
  std::vector<std::byte*> data_;
  List pass_, finish_;
  StepScalars scalars_;  // of the running list, for the other lane
  std::map<Op, int64_t> calls_;
  std::byte* tables_ = nullptr;  // GPU: its lists of parameters
  bool counts_passes_ = false;
  bool may_stop_ = false, has_collectives_ = false;
  const ShouldStop* should_stop_ = nullptr;
  std::unique_ptr<DeviceFinish> device_finish_;
  std::unique_ptr<DeviceLane> device_lane_;  // null: collectives run in order with the rest
  std::unique_ptr<Staging> input_staging_, scalar_staging_;
  std::map<std::string, int64_t> input_offsets_;  // within the staging buffer
  Lane lane_;                                     // last: its thread ends before what it uses
};

}  // namespace weft
