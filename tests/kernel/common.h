// tests/kernel/common.h: buffers, contexts and comparisons for the kernel tests.
#pragma once

#include <gtest/gtest.h>

#include <cctype>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/random.h"
#include "kernel/cpu/level.h"
#include "kernel/kernels.h"
#include "tests/kernel/emulated_cuda/grid.h"
#include "tests/kernel/tested.h"
#include "tests/kernel/tolerances.h"

namespace weft {

// A tensor of fp32, bf16 or fp16 followed by a guard that must not be touched. Unwritten elements
// are NaN in all three types, so that reading them shows in any sum.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Dtype dtype, int64_t n)
      : dtype_(dtype), n_(n), bytes_(static_cast<size_t>(n * dtype_bytes(dtype)) + kGuard) {
    std::memset(bytes_.data(), kUnset, bytes_.size());
  }
  static Buffer random(Dtype dtype, int64_t n, uint64_t stream, double size = 1.0) {
    Buffer buffer(dtype, n);
    for (int64_t i = 0; i < n; ++i) {
      buffer.set(i, normal_at(7, stream, static_cast<uint64_t>(i)) * size);
    }
    return buffer;
  }
  static Buffer filled(Dtype dtype, int64_t n, double value) {
    Buffer buffer(dtype, n);
    for (int64_t i = 0; i < n; ++i) buffer.set(i, value);
    return buffer;
  }

  void* data() { return bytes_.data(); }
  const void* data() const { return bytes_.data(); }
  void* at(int64_t i) { return bytes_.data() + i * dtype_bytes(dtype_); }
  const void* at(int64_t i) const { return bytes_.data() + i * dtype_bytes(dtype_); }
  float* floats() { return reinterpret_cast<float*>(bytes_.data()); }
  const float* floats() const { return reinterpret_cast<const float*>(bytes_.data()); }
  Dtype dtype() const { return dtype_; }
  int64_t size() const { return n_; }
  double operator[](int64_t i) const { return load_element(bytes_.data(), dtype_, i); }
  void set(int64_t i, double v) { store_element(bytes_.data(), dtype_, i, static_cast<float>(v)); }
  bool same_bits(const Buffer& other) const { return bytes_ == other.bytes_; }
  bool guard_intact() const {
    for (size_t i = bytes_.size() - kGuard; i < bytes_.size(); ++i) {
      if (bytes_[i] != std::byte{kUnset}) return false;
    }
    return true;
  }

 private:
  static constexpr size_t kGuard = 64;
  static constexpr unsigned char kUnset = 0xff;
  Dtype dtype_ = Dtype::kF32;
  int64_t n_ = 0;
  TestVector<std::byte> bytes_;
};

// A pool and a workspace of exactly the requested size, guarded. Emulated threads have no fixed
// order; each bench schedules them differently.
class Bench {
 public:
  explicit Bench(int num_threads) : pool_(num_threads) {}
  int num_threads() const { return pool_.num_threads(); }
  Context context(size_t bytes) {
    using emulated_cuda::Order;
    constexpr Order kOrders[] = {Order::kForward, Order::kBackward, Order::kMixed};
    emulated_cuda::set_order(kOrders[(num_threads() - 1) % 3]);
    memory_.assign(bytes + 64, std::byte{0x7f});  // NaN or huge, whatever the type
    return {&pool_, memory_.data(), bytes, gpu_stream()};
  }

 private:
  ThreadPool pool_;
  TestVector<std::byte> memory_;
};

inline void expect_close(const Buffer& got, const Buffer& want, Tolerance tolerance,
                         const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  EXPECT_TRUE(got.guard_intact()) << what << ": wrote past its end";
  double scale = 0.0;
  for (int64_t i = 0; i < want.size(); ++i) scale = std::max(scale, std::abs(want[i]));
  int64_t wrong = 0;
  for (int64_t i = 0; i < want.size(); ++i) {
    const double allowed = tolerance.relative * std::abs(want[i]) + tolerance.absolute * scale;
    if (std::abs(got[i] - want[i]) <= allowed) continue;
    if (++wrong <= 3) {
      ADD_FAILURE() << what << " at " << i << ": got " << got[i] << ", want " << want[i];
    }
  }
  EXPECT_EQ(wrong, 0) << what << ": of " << want.size();
}

inline std::vector<const Kernels*> tested_kernels_and_ref(Dtype dtype) {
  std::vector<const Kernels*> all = tested_kernels(dtype);
  all.push_back(&ref_kernels());
  return all;
}

// One operation on given inputs: runs it on a backend and returns what it wrote.
using Outputs = std::vector<Buffer>;
using Operation = std::function<Outputs(const Kernels&, Bench&)>;

// Every backend of this machine that supports the type against ref; and the same bits with 1, 2 and
// 3 threads.
inline void compare_levels(const std::string& what, Dtype dtype, const Operation& operation,
                           const std::function<Tolerance(size_t output)>& tolerance) {
  Bench one(1), two(2), three(3);
  const Outputs want = operation(ref_kernels(), one);
  for (const Kernels* kernels : tested_kernels(dtype)) {
    const Outputs got = operation(*kernels, one);
    const Outputs got_two = operation(*kernels, two);
    const Outputs got_three = operation(*kernels, three);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) {
      const std::string where = what + ", " + kernels->name + ", output " + std::to_string(i);
      expect_close(got[i], want[i], tolerance(i), where);
      EXPECT_TRUE(got[i].same_bits(got_two[i])) << where << ": two threads change bits";
      EXPECT_TRUE(got[i].same_bits(got_three[i])) << where << ": three threads change bits";
    }
  }
}

inline void compare_levels(const std::string& what, Dtype dtype, const Operation& operation,
                           Tolerance tolerance) {
  compare_levels(what, dtype, operation, [=](size_t) { return tolerance; });
}

// gradient against central differences of loss() by every element of x.
inline void expect_differences(Buffer& x, const std::function<double()>& loss,
                               const Buffer& gradient, const std::string& what) {
  for (int64_t i = 0; i < x.size(); ++i) {
    const double old = x[i];
    x.set(i, old + kDifferenceStep);
    const double up = loss(), high = x[i];
    x.set(i, old - kDifferenceStep);
    const double down = loss(), low = x[i];
    x.set(i, old);
    EXPECT_NEAR(gradient[i], (up - down) / (high - low), kDifferenceTolerance) << what << " " << i;
  }
}

// The test name of a case: its text and a number, because texts may be equal.
template <typename Case>
std::string text_name(const ::testing::TestParamInfo<Case>& info) {
  std::string name;
  for (const char c : info.param.text()) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) name += c;
    if (c == ' ' || c == '.') name += '_';
  }
  return name + "_no" + std::to_string(info.index);
}

inline constexpr Dtype kAllTypes[] = {Dtype::kF32, Dtype::kBf16, Dtype::kF16};
// The dtypes of gradients for values of this type.
inline std::vector<Dtype> gradient_types(Dtype dtype) {
  if (dtype == Dtype::kF16) return {Dtype::kF32};
  return {Dtype::kF32, Dtype::kBf16};
}

}  // namespace weft
