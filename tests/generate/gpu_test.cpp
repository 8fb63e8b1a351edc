// tests/generate/gpu_test.cpp: generation on a GPU, emulated and, where there is one, real.
#include <gtest/gtest.h>

#include <functional>

#include "generate/generator.h"
#include "tests/backends.h"
#include "tests/generate/tiny_model.h"

namespace weft {
namespace {

using testing::load_random;
using testing::make_prompts;
using testing::tiny_model;
using Prompts = std::vector<std::vector<int32_t>>;

struct Case {
  const char* name;
  const char* architecture;
  bool is_tied;
};

SampleOptions greedy(int64_t tokens) {
  SampleOptions o;
  o.max_new_tokens = tokens;
  o.stop_ids = {38, 49, 57};  // so that rows end at different times, and others move
  return o;
}

class GpuGenerator : public ::testing::TestWithParam<std::tuple<std::string, Case>> {
 protected:
  Generator make(const TestBackend& backend, int64_t batch, Dtype compute = Dtype::kF32) {
    return Generator(*model_, {batch, 0, compute}, *backend.kernels, &pool_, load_random,
                     backend.device);
  }
  Generator on_cpu(int64_t batch) { return make({&cpu_kernels(), &host_device()}, batch); }

  const TestBackend gpu_ = find_backend(std::get<0>(GetParam()));
  // A real GPU is tested more; the emulated one is slow.
  const bool is_real_ = std::get<0>(GetParam()) == "cuda";
  std::unique_ptr<Model> model_ =
      tiny_model(std::get<1>(GetParam()).architecture, std::get<1>(GetParam()).is_tied);
  ThreadPool pool_{2};
};

TEST_P(GpuGenerator, GreedyTokensEqualTheCpus) {
  const Prompts prompts = make_prompts(is_real_ ? 41 : 11);
  const SampleOptions o = greedy(is_real_ ? 24 : 10);
  const Prompts wanted = on_cpu(4).generate(prompts, o);
  size_t stopped = 0;
  for (const auto& ids : wanted) stopped += ids.size() < static_cast<size_t>(o.max_new_tokens);
  EXPECT_GT(stopped, 0u);
  EXPECT_LT(stopped, wanted.size());
  for (const int64_t batch : is_real_ ? std::vector<int64_t>{1, 3, 8} : std::vector<int64_t>{3}) {
    EXPECT_EQ(make(gpu_, batch).generate(prompts, o), wanted) << "batch " << batch;
  }
}

TEST_P(GpuGenerator, ASecondCallEqualsTheFirst) {
  Generator g = make(gpu_, 2);
  const Prompts prompts = make_prompts(3);
  const Prompts first = g.generate(prompts, greedy(8));  // eager
  EXPECT_EQ(g.generate(prompts, greedy(8)), first);      // captured
  EXPECT_EQ(g.generate(prompts, greedy(8)), first);      // replayed
}

TEST_P(GpuGenerator, Bf16IsRepeatedToo) {
  const Prompts prompts = make_prompts(3);
  const Prompts got = make(gpu_, 2, Dtype::kBf16).generate(prompts, greedy(6));
  EXPECT_EQ(make(gpu_, 2, Dtype::kBf16).generate(prompts, greedy(6)), got);
  for (const auto& ids : got) EXPECT_GT(ids.size(), 0u);
}

INSTANTIATE_TEST_SUITE_P(
    Backends, GpuGenerator,
    ::testing::Combine(::testing::ValuesIn(gpu_backend_names()),
                       ::testing::Values(Case{"qwen2", "Qwen2ForCausalLM", true},
                                         Case{"llama", "LlamaForCausalLM", false})),
    [](const auto& c) { return std::get<0>(c.param) + "_" + std::get<1>(c.param).name; });

// Counts the host's waits, and can drop copies within device memory.
class WatchedDevice : public EmulatedDevice {
 public:
  std::byte* allocate(int64_t bytes) override {
    std::byte* at = EmulatedDevice::allocate(bytes);
    if (bytes >= bytes_) begin_ = at, bytes_ = bytes;  // the newest arena: the largest so far
    return at;
  }
  std::byte* allocate_pinned(int64_t bytes) override { return EmulatedDevice::allocate(bytes); }
  void wait() override { ++num_waits; }
  void read(void* to, const void* from, int64_t bytes) override {
    ++num_waits;
    EmulatedDevice::read(to, from, bytes);
  }
  void copy(void* to, const void* from, int64_t bytes) override {
    if (loses_rows && is_own(to) && is_own(from)) return;
    EmulatedDevice::copy(to, from, bytes);
  }
  int num_waits = 0;
  bool loses_rows = false;

 private:
  bool is_own(const void* at) const {
    return std::less_equal<>()(static_cast<const void*>(begin_), at) &&
           std::less<>()(at, static_cast<const void*>(begin_ + bytes_));
  }
  std::byte* begin_ = nullptr;
  int64_t bytes_ = 0;
};

class WatchedGenerator : public ::testing::Test {
 protected:
  Generator make(int64_t batch) {
    return Generator(*model_, {batch, 0, Dtype::kF32}, emulated_kernels(), &pool_, load_random,
                     &device_);
  }
  WatchedDevice device_;
  std::unique_ptr<Model> model_ = tiny_model();
  ThreadPool pool_{2};
};

TEST_F(WatchedGenerator, TheHostWaitsOncePerStepAndPlansAreCapturedOnce) {
  Generator g = make(1);
  SampleOptions o;
  o.max_new_tokens = 10;
  device_.num_waits = 0;
  ASSERT_EQ(g.generate({{1, 2, 3}}, o)[0].size(), 10u);
  EXPECT_EQ(device_.num_waits, 10);
  EXPECT_EQ(device_.num_captured, 1);  // that of one token; the prompt's ran once
  g.generate({{1, 2, 3}}, o);
  g.generate({{1, 2, 3}}, o);
  EXPECT_EQ(device_.num_captured, 2);
}

// Negative control: a row that moves without its keys and values continues differently.
TEST_F(WatchedGenerator, LostRowsAreDetected) {
  const Prompts prompts = make_prompts(11);
  const Prompts whole = make(4).generate(prompts, greedy(10));
  device_.loses_rows = true;
  EXPECT_NE(make(4).generate(prompts, greedy(10)), whole);
}

}  // namespace
}  // namespace weft
