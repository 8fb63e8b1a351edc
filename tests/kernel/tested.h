// tests/kernel/tested.h: the backends that the kernel tests compare with ref, and their memory.
//
// These are the levels of this CPU, the GPU's kernels as emulated on it, and a GPU where the
// program was built for one and finds it: only that one where WEFT_TEST_GPU_ALONE is set. A GPU can
// access pinned memory, so the tests keep their tensors there and need not know which kernel they
// call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kernel/device_kernels.h"

namespace weft {

// Those that support this type: fp16 is for GPUs. A real GPU's kernels synchronize before they
// return.
const std::vector<const Kernels*>& tested_kernels(Dtype dtype = Dtype::kF32);

struct TestedDevice {
  std::string name;
  const DeviceKernels* kernels;
};
const std::vector<TestedDevice>& tested_devices();

void* gpu_stream();  // null where there is no GPU

// Memory that every backend can access, 64-byte aligned.
void* take_test_memory(size_t bytes);
void free_test_memory(void* memory, size_t bytes);

template <typename T>
struct TestAllocator {
  using value_type = T;  // NOLINT(readability-identifier-naming): the standard's name
  TestAllocator() = default;
  template <typename U>
  TestAllocator(const TestAllocator<U>&) {}
  T* allocate(size_t n) { return static_cast<T*>(take_test_memory(n * sizeof(T))); }
  void deallocate(T* at, size_t n) { free_test_memory(at, n * sizeof(T)); }
  bool operator==(const TestAllocator&) const { return true; }
};
template <typename T>
using TestVector = std::vector<T, TestAllocator<T>>;

}  // namespace weft
