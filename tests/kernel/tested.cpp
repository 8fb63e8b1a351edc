// tests/kernel/tested.cpp: levels, the emulated GPU and the real one, as tables to be tested.
#include "tests/kernel/tested.h"

#include <cstdlib>
#include <memory_resource>

#include "kernel/cpu/level.h"
#include "tensor/device.h"
#include "tests/kernel/emulated_cuda/table.h"

namespace weft {
namespace {

// Null where the program was built without CUDA, or finds no GPU.
Device* gpu() {
  static const std::unique_ptr<Device> device = [] {
    std::string why;
    return cuda_kernels() && count_cuda_devices(&why) > 0 ? open_cuda_device(0) : nullptr;
  }();
  return device.get();
}

class PinnedMemory : public std::pmr::memory_resource {
 private:
  void* do_allocate(size_t bytes, size_t) override {
    return gpu()->allocate_pinned(static_cast<int64_t>(bytes));
  }
  void do_deallocate(void* at, size_t bytes, size_t) override {
    gpu()->free_pinned(static_cast<std::byte*>(at), static_cast<int64_t>(bytes));
  }
  bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }
};

// Pinning takes a millisecond, so freed blocks are cached. Never destroyed: tests hold memory in
// static objects.
std::pmr::memory_resource* test_memory() {
  if (!gpu()) return std::pmr::new_delete_resource();
  static auto* pool = new std::pmr::unsynchronized_pool_resource(
      {.max_blocks_per_chunk = 64, .largest_required_pool_block = 1 << 22}, new PinnedMemory);
  return pool;
}

// A kernel of a table that waits for the GPU.
template <auto kOp, typename Table>
struct Waiting;
template <typename Table, typename Args, void (*Table::*kOp)(const Context&, const Args&)>
struct Waiting<kOp, Table> {
  static inline void (*original)(const Context&, const Args&) = nullptr;
  static void call(const Context& context, const Args& args) {
    original(context, args);
    gpu()->wait();
  }
};

template <auto kOp, typename Table>
void make_waiting(Table* table) {
  Waiting<kOp, Table>::original = table->*kOp;
  table->*kOp = Waiting<kOp, Table>::call;
}

const Kernels& gpu_kernels() {
  static const Kernels table = [] {
    Kernels t = *cuda_kernels();
#define WEFT_WAIT(name, Args) make_waiting<&Kernels::name>(&t);
    WEFT_KERNELS(WEFT_WAIT, WEFT_WAIT)
#undef WEFT_WAIT
    return t;
  }();
  return table;
}

const DeviceKernels& gpu_device_kernels() {
  static const DeviceKernels table = [] {
    DeviceKernels t = *cuda_kernels()->device;
#define WEFT_WAIT(name, Args) make_waiting<&DeviceKernels::name>(&t);
    WEFT_DEVICE_KERNELS(WEFT_WAIT)
#undef WEFT_WAIT
    return t;
  }();
  return table;
}

// For short GPU sessions: what runs on the CPU is tested elsewhere.
bool is_gpu_alone() {
  const char* set = std::getenv("WEFT_TEST_GPU_ALONE");
  return gpu() && set && *set;
}

}  // namespace

const std::vector<const Kernels*>& tested_kernels(Dtype dtype) {
  static const std::vector<const Kernels*> gpus = [] {
    std::vector<const Kernels*> all;
    if (!is_gpu_alone()) all.push_back(&emulated_kernels());
    if (gpu()) all.push_back(&gpu_kernels());
    return all;
  }();
  static const std::vector<const Kernels*> list = [] {
    std::vector<const Kernels*> all;
    for (const char* name : available_levels()) {
      if (!is_gpu_alone()) all.push_back(find_kernels(name));
    }
    all.insert(all.end(), gpus.begin(), gpus.end());
    return all;
  }();
  return dtype == Dtype::kF16 ? gpus : list;
}

const std::vector<TestedDevice>& tested_devices() {
  static const std::vector<TestedDevice> list = [] {
    std::vector<TestedDevice> all;
    if (!is_gpu_alone()) all.push_back({"cuda_emulated", &emulated_device_kernels()});
    if (gpu()) all.push_back({"cuda", &gpu_device_kernels()});
    return all;
  }();
  return list;
}

void* gpu_stream() { return gpu() ? gpu()->stream() : nullptr; }

void* take_test_memory(size_t bytes) { return test_memory()->allocate(bytes, 64); }
void free_test_memory(void* memory, size_t bytes) { test_memory()->deallocate(memory, bytes, 64); }

}  // namespace weft
