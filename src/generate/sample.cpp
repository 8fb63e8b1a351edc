// generate/sample.cpp: the likeliest token, or a draw from the cut and scaled distribution.
#include "generate/sample.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/hash.h"
#include "base/random.h"

namespace weft {
namespace {

// The candidates, likeliest first, are sorted only as far as they are needed: a vocabulary has
// 150,000 entries and top_p rarely keeps more than a few hundred.
constexpr size_t kFirstSorted = 256;

// One result for every kColumns-th logit: a chain of its own each, which the compiler turns into
// vectors.
constexpr size_t kColumns = 16;
template <typename Fn>
std::array<float, kColumns> fold(std::span<const float> logits, float first, const Fn& fn) {
  std::array<float, kColumns> results;
  results.fill(first);
  size_t at = 0;
  for (; at + kColumns <= logits.size(); at += kColumns) {
    for (size_t i = 0; i < kColumns; ++i) results[i] = fn(results[i], logits[at + i]);
  }
  for (; at < logits.size(); ++at) results[0] = fn(results[0], logits[at]);
  return results;
}

// The first of the largest; logits are finite.
int32_t likeliest(std::span<const float> logits) {
  const auto largest = fold(logits, logits[0], [](float a, float b) { return a < b ? b : a; });
  const auto at = std::find(logits.begin(), logits.end(), *std::ranges::max_element(largest));
  return static_cast<int32_t>(at - logits.begin());
}

void check_finite(std::span<const float> logits) {
  // A single NaN or infinity makes x * 0 no longer 0.
  const auto sums = fold(logits, 0.0f, [](float a, float b) { return a + b * 0.0f; });
  if (std::ranges::all_of(sums, [](float sum) { return sum == 0.0f; })) return;
  throw RunError("the model's logits are not finite",
                 "its weights may be damaged or may have overflowed");
}

// Probabilities up to a common factor.
std::vector<double> weights_of(std::span<const float> logits, double temperature) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  std::vector<double> weights(logits.size());
  std::transform(logits.begin(), logits.end(), weights.begin(),
                 [&](float x) { return std::exp((x - largest) / temperature); });
  return weights;
}

// How many of the likeliest reach p of the total; ids is sorted at least that far.
size_t reach(std::vector<int32_t>& ids, const std::vector<double>& weights, size_t limit, double p,
             double total) {
  const auto weight = [&](int32_t id) { return weights[static_cast<size_t>(id)]; };
  const auto likelier = [&](int32_t a, int32_t b) {
    return weight(a) != weight(b) ? weight(a) > weight(b) : a < b;
  };
  const auto at = [&](size_t i) { return ids.begin() + static_cast<std::ptrdiff_t>(i); };
  double sum = 0;
  for (size_t begin = 0, end = std::min(limit, kFirstSorted); begin < limit;
       begin = end, end = std::min(limit, end * 4)) {
    std::partial_sort(at(begin), at(end), ids.end(), likelier);
    for (size_t i = begin; i < end; ++i) {
      sum += weight(ids[i]);
      if (sum >= p * total) return i + 1;
    }
  }
  return limit;
}

// The candidates that top_k and top_p keep. p applies to what top_k has kept.
std::vector<int32_t> candidates(const std::vector<double>& weights, const SampleOptions& o) {
  std::vector<int32_t> ids(weights.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto sum_of = [&](size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; ++i) sum += weights[static_cast<size_t>(ids[i])];
    return sum;
  };
  const bool cut_k = o.top_k > 0 && static_cast<size_t>(o.top_k) < ids.size();
  if (cut_k) ids.resize(reach(ids, weights, static_cast<size_t>(o.top_k), 2, sum_of(ids.size())));
  if (o.top_p < 1) {
    ids.resize(reach(ids, weights, ids.size(), o.top_p, sum_of(ids.size())));
  }
  return ids;
}

}  // namespace

void check_options(const SampleOptions& o) {
  require(o.max_new_tokens >= 0, "max_new_tokens is {}, wanted 0 or more", o.max_new_tokens);
  require(std::isfinite(o.temperature) && o.temperature >= 0,
          "temperature is {}, wanted 0 (greedy) or more", o.temperature);
  require(o.top_k >= 0, "top_k is {}, wanted 0 (all) or more", o.top_k);
  require(o.top_p > 0 && o.top_p <= 1, "top_p is {}, wanted above 0 and up to 1", o.top_p);
}

int32_t sample_token(std::span<const float> logits, const SampleOptions& options, uint64_t prompt,
                     uint64_t position) {
  check_finite(logits);
  if (options.temperature == 0 || options.top_k == 1) return likeliest(logits);
  const std::vector<double> weights = weights_of(logits, options.temperature);
  const std::vector<int32_t> ids = candidates(weights, options);
  double total = 0;
  for (const int32_t id : ids) total += weights[static_cast<size_t>(id)];
  const uint64_t stream = hash_bytes(&prompt, sizeof prompt, hash_text("generate"));
  double left = uniform_at(options.seed, stream, position) * total;
  for (const int32_t id : ids) {
    left -= weights[static_cast<size_t>(id)];
    if (left < 0) return id;
  }
  return likeliest(logits);  // rounding left a remainder
}

}  // namespace weft
