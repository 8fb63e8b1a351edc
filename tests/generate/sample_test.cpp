// tests/generate/sample_test.cpp: greedy, top-k, top-p, and reproducible draws.
#include "generate/sample.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "base/error.h"
#include "base/hash.h"
#include "base/random.h"

namespace weft {
namespace {

// Probabilities 0.4, 0.3, 0.2, 0.1 at ids 2, 0, 3, 1.
const std::vector<float> kLogits = {std::log(0.3f), std::log(0.1f), std::log(0.4f), std::log(0.2f)};

std::vector<int> counts(const SampleOptions& options, int draws) {
  std::vector<int> n(kLogits.size(), 0);
  for (int i = 0; i < draws; ++i) {
    ++n[static_cast<size_t>(sample_token(kLogits, options, 0, static_cast<uint64_t>(i)))];
  }
  return n;
}

SampleOptions drawing() {
  SampleOptions o;
  o.temperature = 1;
  o.seed = 3;
  return o;
}

TEST(Sample, GreedyTakesTheLikeliestAndTheLowerOfEquals) {
  EXPECT_EQ(sample_token(kLogits, {}, 0, 0), 2);
  EXPECT_EQ(sample_token(std::vector<float>{1, 5, 5, 2}, {}, 0, 0), 1);
}

TEST(Sample, DrawsFollowTheProbabilities) {
  const std::vector<int> n = counts(drawing(), 20000);
  const double wanted[] = {0.3, 0.1, 0.4, 0.2};
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(n[i] / 20000.0, wanted[i], 0.02) << i;
}

TEST(Sample, TemperatureSharpens) {
  SampleOptions o = drawing();
  o.temperature = 0.5;  // squares: 16 of 30
  EXPECT_NEAR(counts(o, 20000)[2] / 20000.0, 16.0 / 30, 0.02);
}

TEST(Sample, TopKLeavesK) {
  SampleOptions o = drawing();
  o.top_k = 2;
  const std::vector<int> n = counts(o, 20000);
  EXPECT_EQ(n[1] + n[3], 0);
  EXPECT_NEAR(n[2] / 20000.0, 4.0 / 7, 0.02);
  o.top_k = 100;  // more than there are
  EXPECT_GT(counts(o, 2000)[1], 0);
}

TEST(Sample, TopPLeavesTheFewestThatReachP) {
  SampleOptions o = drawing();
  o.top_p = 0.65;  // 0.4 + 0.3
  std::vector<int> n = counts(o, 5000);
  EXPECT_EQ(n[1] + n[3], 0);
  EXPECT_GT(n[0], 0);
  o.top_p = 0.75;  // the third is needed
  n = counts(o, 5000);
  EXPECT_EQ(n[1], 0);
  EXPECT_GT(n[3], 0);
  o.top_p = 1e-9;  // never empty
  EXPECT_EQ(counts(o, 100)[2], 100);
}

// Among equals the lower ids are kept, and no more than reach p exactly; also beyond the part
// sorted at first.
TEST(Sample, TopPCutsAmongEquals) {
  SampleOptions o = drawing();
  o.top_p = 0.5;
  for (const size_t vocab : {size_t{4}, size_t{600}}) {
    const std::vector<float> logits(vocab, 1.5f);
    std::set<int32_t> seen;
    for (uint64_t i = 0; i < 4000; ++i) seen.insert(sample_token(logits, o, 0, i));
    EXPECT_EQ(seen.size(), vocab / 2);
    EXPECT_EQ(*seen.begin(), 0);
    EXPECT_EQ(*seen.rbegin(), static_cast<int32_t>(vocab / 2 - 1));
  }
}

TEST(Sample, TopPAppliesAfterTopK) {
  SampleOptions o = drawing();
  o.top_k = 2;
  o.top_p = 0.5;  // 0.4 / 0.7 reaches it alone
  EXPECT_EQ(counts(o, 1000)[2], 1000);
}

TEST(Sample, LargeVocabularyIsCutAsBySorting) {
  std::vector<float> logits(5000);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i % 1000);
  SampleOptions o = drawing();
  o.temperature = 1000;  // nearly flat
  o.top_k = 700;
  std::set<int32_t> seen;
  for (uint64_t i = 0; i < 2000; ++i) seen.insert(sample_token(logits, o, 1, i));
  EXPECT_GT(seen.size(), 500u);
  // The 700 likeliest are the five ids of each logit from 999 down to 860.
  for (const int32_t id : seen) EXPECT_GE(id % 1000, 860);
}

TEST(Sample, ADrawIsAFunctionOfSeedPromptAndPosition) {
  SampleOptions o = drawing();
  std::vector<int32_t> first, again, other_prompt, other_seed;
  for (uint64_t i = 0; i < 50; ++i) {
    first.push_back(sample_token(kLogits, o, 0, i));
    again.push_back(sample_token(kLogits, o, 0, i));
    other_prompt.push_back(sample_token(kLogits, o, 1, i));
  }
  o.seed = 4;
  for (uint64_t i = 0; i < 50; ++i) other_seed.push_back(sample_token(kLogits, o, 0, i));
  EXPECT_EQ(first, again);
  EXPECT_NE(first, other_prompt);
  EXPECT_NE(first, other_seed);
}

// The same seed must yield the same text in later versions: without a cut the candidates are walked
// in id order.
TEST(Sample, WithoutACutTheDrawWalksTheIds) {
  const uint64_t prompt = 5;
  const uint64_t stream = hash_bytes(&prompt, sizeof prompt, hash_text("generate"));
  const double probabilities[] = {0.3, 0.1, 0.4, 0.2};
  for (uint64_t i = 0; i < 200; ++i) {
    double left = uniform_at(drawing().seed, stream, i);
    int32_t wanted = 0;
    for (; wanted < 3 && left >= probabilities[wanted]; ++wanted) left -= probabilities[wanted];
    EXPECT_EQ(sample_token(kLogits, drawing(), prompt, i), wanted) << i;
  }
}

TEST(Sample, NotFiniteIsAnError) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    EXPECT_THROW(sample_token(std::vector<float>{0, bad}, {}, 0, 0), RunError);
  }
}

TEST(Sample, OptionsAreChecked) {
  const auto refused = [](auto change) {
    SampleOptions o;
    change(o);
    EXPECT_THROW(check_options(o), UserError);
  };
  refused([](SampleOptions& o) { o.temperature = -1; });
  refused([](SampleOptions& o) { o.temperature = std::nan(""); });
  refused([](SampleOptions& o) { o.top_k = -1; });
  refused([](SampleOptions& o) { o.top_p = 0; });
  refused([](SampleOptions& o) { o.top_p = 1.5; });
  refused([](SampleOptions& o) { o.max_new_tokens = -1; });
  EXPECT_NO_THROW(check_options({}));
}

}  // namespace
}  // namespace weft
