// tests/backends.h: the backends for tests: the CPU's levels, an emulated GPU, and a real one where
// there is one.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernel/cpu/level.h"
#include "kernel/device_kernels.h"
#include "tensor/device.h"
#include "tests/emulated_device.h"

namespace weft {

struct TestBackend {
  const Kernels* kernels;
  Device* device;
};

inline std::vector<std::string> backend_names() {
  std::vector<std::string> names;
  for (const char* level : available_levels()) names.emplace_back(level);
  names.emplace_back("cuda_emulated");
  std::string why;
  if (cuda_kernels() && count_cuda_devices(&why) > 0) names.emplace_back("cuda");
  return names;
}

inline TestBackend find_backend(const std::string& name) {
  static EmulatedDevice emulated;
  if (name == "cuda_emulated") return {&emulated_kernels(), &emulated};
  if (name != "cuda") return {find_kernels(name.c_str()), &host_device()};
  static const std::unique_ptr<Device> gpu = open_cuda_device(0);
  return {cuda_kernels(), gpu.get()};
}

// For a rank that is a thread: a GPU has one stream per rank. "": the CPU's best level.
struct RankBackend {
  explicit RankBackend(const std::string& name) {
    if (name == "cuda") own = open_cuda_device(0);
    const TestBackend found = name.empty() ? TestBackend{&cpu_kernels(), &host_device()}
                              : own        ? TestBackend{cuda_kernels(), own.get()}
                                           : find_backend(name);
    kernels = found.kernels;
    device = found.device;
  }
  std::unique_ptr<Device> own;
  const Kernels* kernels;
  Device* device;
};

// Those whose tensors are not on the host.
inline std::vector<std::string> gpu_backend_names() {
  std::vector<std::string> names;
  for (const std::string& name : backend_names()) {
    if (name.starts_with("cuda")) names.push_back(name);
  }
  return names;
}

}  // namespace weft
