// tests/exec/head_test.cpp: the head against the same numbers in fp64: losses, dx and dweight.
#include "exec/head.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/random.h"
#include "tests/backends.h"

namespace weft {
namespace {

constexpr int64_t kTokens = 29, kWidth = 24, kVocabulary = 90;

struct Case {
  Dtype dtype = Dtype::kF32, grad_dtype = Dtype::kF32;
  int64_t chunk_rows = 8;
  std::vector<int64_t> pieces = {kVocabulary};  // of the vocabulary
  int leaves = 0;                               // as HeadArgs says
  bool no_targets = false;
};

// What a head computes, as fp64.
struct Numbers {
  std::vector<double> losses, dx, dweight;
};

double drawn(uint64_t stream, int64_t i, Dtype dtype) {
  const auto v = static_cast<float>(0.5 * normal_at(7, stream, static_cast<uint64_t>(i)));
  return static_cast<double>(dtype == Dtype::kBf16 ? to_float(to_bf16(v)) : v);
}

// Every third token has no target.
std::vector<int32_t> make_targets(const Case& c) {
  std::vector<int32_t> targets;
  for (int64_t t = 0; t < kTokens; ++t) {
    const bool has = !c.no_targets && t % 3 != 1;
    targets.push_back(has ? static_cast<int32_t>(t * 37 % kVocabulary) : -1);
  }
  return targets;
}

Numbers in_fp64(const Case& c, double dweight_before) {
  Numbers n;
  n.losses.assign(kTokens, 0);
  n.dx.assign(kTokens * kWidth, 0);
  n.dweight.assign(kVocabulary * kWidth, dweight_before);
  const std::vector<int32_t> targets = make_targets(c);
  const auto x = [&](int64_t t, int64_t j) { return drawn(1, t * kWidth + j, c.dtype); };
  const auto w = [&](int64_t v, int64_t j) { return drawn(2, v * kWidth + j, c.dtype); };
  for (int64_t t = 0; t < kTokens; ++t) {
    if (targets[static_cast<size_t>(t)] < 0) continue;
    const int64_t target = targets[static_cast<size_t>(t)];
    std::vector<double> p(kVocabulary);
    double sum = 0;
    for (int64_t v = 0; v < kVocabulary; ++v) {
      double logit = 0;
      for (int64_t j = 0; j < kWidth; ++j) logit += x(t, j) * w(v, j);
      p[static_cast<size_t>(v)] = std::exp(logit);
      sum += p[static_cast<size_t>(v)];
    }
    n.losses[static_cast<size_t>(t)] = -std::log(p[static_cast<size_t>(target)] / sum);
    for (int64_t v = 0; v < kVocabulary; ++v) {
      const double d = p[static_cast<size_t>(v)] / sum - (v == target ? 1 : 0);
      for (int64_t j = 0; j < kWidth; ++j) {
        n.dx[static_cast<size_t>(t * kWidth + j)] += d * w(v, j);
        n.dweight[static_cast<size_t>(v * kWidth + j)] += d * x(t, j);
      }
    }
  }
  return n;
}

// Memory of a backend's device, filled and read back as numbers.
class OnDevice {
 public:
  OnDevice(Device* device, int64_t n, Dtype dtype)
      : device_(device), n_(n), dtype_(dtype), bytes_(n * dtype_bytes(dtype)) {
    memory_ = device->allocate(bytes_);
  }
  ~OnDevice() { device_->free(memory_, bytes_); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

  std::byte* at(int64_t element) const { return memory_ + element * dtype_bytes(dtype_); }
  template <typename Fn>
  void fill(const Fn& value) {
    std::vector<std::byte> host(static_cast<size_t>(bytes_));
    for (int64_t i = 0; i < n_; ++i)
      store_element(host.data(), dtype_, i, static_cast<float>(value(i)));
    device_->write(memory_, host.data(), bytes_);
  }
  std::vector<double> read() const {
    std::vector<std::byte> host(static_cast<size_t>(bytes_));
    device_->read(host.data(), memory_, bytes_);
    std::vector<double> numbers;
    for (int64_t i = 0; i < n_; ++i)
      numbers.push_back(static_cast<double>(load_element(host.data(), dtype_, i)));
    return numbers;
  }

 private:
  Device* device_;
  int64_t n_;
  Dtype dtype_;
  int64_t bytes_;
  std::byte* memory_;
};

Numbers run_head(const Case& c, const TestBackend& backend, bool accumulate,
                 double dweight_before) {
  Device* device = backend.device;
  OnDevice x(device, kTokens * kWidth, c.dtype), weight(device, kVocabulary * kWidth, c.dtype);
  OnDevice losses(device, kTokens, Dtype::kF32), dx(device, kTokens * kWidth, c.dtype);
  OnDevice dweight(device, kVocabulary * kWidth, c.grad_dtype);
  OnDevice targets(device, kTokens, Dtype::kF32);  // as wide as int32
  x.fill([&](int64_t i) { return drawn(1, i, c.dtype); });
  weight.fill([&](int64_t i) { return drawn(2, i, c.dtype); });
  losses.fill([](int64_t) { return 9.0; });  // what was there before must not matter
  dx.fill([](int64_t) { return 9.0; });
  dweight.fill([&](int64_t) { return dweight_before; });
  device->write(targets.at(0), make_targets(c).data(), kTokens * 4);

  HeadArgs a{};
  a.R = kTokens;
  a.C = kWidth;
  a.V = kVocabulary;
  a.chunk_rows = c.chunk_rows;
  a.dtype = a.dx_dtype = c.dtype;
  a.grad_dtype = c.grad_dtype;
  a.x = x.at(0);
  a.targets = reinterpret_cast<const int32_t*>(targets.at(0));
  a.losses = reinterpret_cast<float*>(losses.at(0));
  a.dx = dx.at(0);
  a.with_gradient = true;
  a.leaves = c.leaves;
  a.weight.ld = a.dweight.ld = kWidth;
  a.weight.count = a.dweight.count = static_cast<int>(c.pieces.size());
  int64_t row = 0;
  for (size_t p = 0; p < c.pieces.size(); row += c.pieces[p++]) {
    a.weight.part[p] = weight.at(row * kWidth);
    a.dweight.part[p] = dweight.at(row * kWidth);
    a.weight.rows[p] = a.dweight.rows[p] = c.pieces[p];
  }

  ThreadPool pool(2);
  const size_t bytes = head_workspace(*backend.kernels, a, 2);
  std::byte* workspace = device->allocate(static_cast<int64_t>(bytes));
  const Head head(*backend.kernels, a, {&pool, workspace, bytes, device->stream()});
  head.run(accumulate);
  device->wait();
  device->free(workspace, static_cast<int64_t>(bytes));
  return {losses.read(), dx.read(), dweight.read()};
}

// Of the whole: every element is held against the largest.
double distance(const std::vector<double>& got, const std::vector<double>& wanted) {
  double worst = 0, largest = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    worst = std::max(worst, std::abs(got[i] - wanted[i]));
    largest = std::max(largest, std::abs(wanted[i]));
  }
  return largest == 0 ? worst : worst / largest;
}

class HeadTest : public ::testing::TestWithParam<std::string> {
 protected:
  TestBackend backend() const { return find_backend(GetParam()); }
  void expect_close(const Case& c, double loss_error, double error) const {
    for (const bool accumulate : {false, true}) {
      SCOPED_TRACE(accumulate);
      const Numbers got = run_head(c, backend(), accumulate, 0.25);
      const Numbers wanted = in_fp64(c, accumulate ? 0.25 : 0);
      EXPECT_LT(distance(got.losses, wanted.losses), loss_error);
      EXPECT_LT(distance(got.dx, wanted.dx), error);
      EXPECT_LT(distance(got.dweight, wanted.dweight), error);
      for (size_t t = 1; t < kTokens; t += 3) {
        EXPECT_EQ(got.losses[t], 0) << "a token without a target";
        for (size_t j = 0; j < kWidth; ++j) EXPECT_EQ(got.dx[t * kWidth + j], 0);
      }
    }
  }
};

TEST_P(HeadTest, OneProductInChunks) {
  for (const int64_t chunk_rows : {int64_t{1}, int64_t{8}, kTokens}) {
    SCOPED_TRACE(chunk_rows);
    expect_close({.chunk_rows = chunk_rows}, 1e-6, 1e-5);
  }
}

TEST_P(HeadTest, AVocabularyInPieces) {
  for (const int leaves : {0, 4}) {  // pieces as one contraction, and as its leaves
    SCOPED_TRACE(leaves);
    expect_close({.pieces = {40, 17, 20, 13}, .leaves = leaves}, 1e-6, 1e-5);
  }
}

TEST_P(HeadTest, Bf16RoundsTheSumOfChunksOnce) {
  Case c{.dtype = Dtype::kBf16, .grad_dtype = Dtype::kBf16};
  expect_close(c, 1e-2, 2e-2);
  c.pieces = {40, 50};
  c.leaves = 2;
  expect_close(c, 1e-2, 2e-2);
}

TEST_P(HeadTest, WithoutTargetsNothingIsAdded) {
  const Case c{.no_targets = true};
  for (const bool accumulate : {false, true}) {
    const Numbers got = run_head(c, backend(), accumulate, 0.25);
    EXPECT_EQ(got.losses, std::vector<double>(kTokens, 0));
    EXPECT_EQ(got.dx, std::vector<double>(kTokens * kWidth, 0));
    EXPECT_EQ(got.dweight, std::vector<double>(kVocabulary * kWidth, accumulate ? 0.25 : 0));
  }
}

std::vector<std::string> with_ref() {
  std::vector<std::string> names = backend_names();
  names.emplace_back("ref");
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, HeadTest, ::testing::ValuesIn(with_ref()),
                         [](const auto& tested) { return tested.param; });

}  // namespace
}  // namespace weft
