// tests/kernel/each_device.h: runs a check on the kernels of every GPU backend.
#pragma once

#include <fmt/core.h>

#include "kernel/device_kernels.h"
#include "tests/kernel/common.h"

namespace weft {

// fn(kernels, bench, name) on every device, with the threads in every order.
template <typename Fn>
void each_device(const Fn& fn) {
  for (const TestedDevice& device : tested_devices()) {
    for (const int order : {1, 2, 3}) {
      Bench bench(order);
      fn(*device.kernels, bench, fmt::format("{}, order {}", device.name, order));
    }
  }
}

inline const Kernels& kernels_named(const std::string& name) {
  for (const Kernels* kernels : tested_kernels()) {
    if (name.starts_with(std::string(kernels->name) + ",")) return *kernels;
  }
  throw std::runtime_error("no kernels of " + name);
}

}  // namespace weft
