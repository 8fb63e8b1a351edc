// tests/generate/decoders_test.cpp: of every family, the cache does not change logits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "generate/generator.h"
#include "tests/generate/tiny_model.h"
#include "tests/tiny_decoders.h"

namespace weft::testing {
namespace {

class GeneratesDecoder : public ::testing::TestWithParam<TinyDecoder> {
 protected:
  std::vector<float> logits_of(int64_t positions, const Feed& feed) {
    steps_.at(positions)->run({&feed, 1});
    const auto logits = steps_.at(positions)->logits(0);
    return {logits.begin(), logits.end()};
  }

  std::unique_ptr<Model> model_ = make_model(tiny_decoder(GetParam().config), {});
  ThreadPool pool_{2};
  GeneratePlans plans_ = make_generate_plans(*model_, {1, 64, Dtype::kF32}, ref_kernels(), 2);
  ArenaLayout layout_ = layout_of(plans_);
  Arena arena_{layout_.total_bytes()};
  HostLogits host_{&host_device(), 1, 260};
  std::map<int64_t, std::unique_ptr<GenerateStep>> steps_;  // by positions
};

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(double{a[i]} - b[i]));
  return most;
}

// 40 tokens: far beyond the windows.
TEST_P(GeneratesDecoder, SingleStepsHaveTheLogitsOfAWholePrompt) {
  Generator fill(*model_, plans_, layout_, arena_, &pool_);
  fill.load_parameters(load_random);
  for (const GeneratePlan& p : plans_.plans)
    steps_[p.positions] = std::make_unique<GenerateStep>(p, layout_, arena_, &pool_, &host_);
  std::vector<int32_t> tokens;
  for (uint64_t t = 0; t < 40; ++t)
    tokens.push_back(static_cast<int32_t>(philox(6, 1, t)[0] % 260));
  std::vector<std::vector<float>> stepwise;
  for (size_t t = 0; t < tokens.size(); ++t)
    stepwise.push_back(logits_of(1, {{&tokens[t], 1}, static_cast<int64_t>(t)}));
  for (size_t t = 0; t < tokens.size(); t += 3)
    EXPECT_LT(distance(logits_of(64, {{tokens.data(), t + 1}, 0}), stepwise[t]), 1e-5) << t;
  // A prompt in two parts.
  logits_of(16, {{tokens.data(), 13}, 0});
  EXPECT_LT(distance(logits_of(16, {{tokens.data() + 13, 9}, 13}), stepwise[21]), 1e-5);
  // Negative control: a token at another position is noticed.
  EXPECT_GT(distance(logits_of(1, {{&tokens.back(), 1}, 38}), stepwise.back()), 1e-3);
}

INSTANTIATE_TEST_SUITE_P(All, GeneratesDecoder, ::testing::ValuesIn(tiny_decoders()),
                         [](const auto& c) { return std::string(c.param.name); });

}  // namespace
}  // namespace weft::testing
