// generate/sample.h: the next token from its logits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace weft {

struct SampleOptions {
  int64_t max_new_tokens = 128;
  double temperature = 0;  // 0: always the likeliest token (greedy)
  int64_t top_k = 0;       // draw among the k likeliest; 0: among all
  double top_p = 1;        // draw among the fewest whose probabilities reach p; 1: among all
  uint64_t seed = 0;
  std::vector<int32_t> stop_ids;  // a row ends with the first of these
};

// UserError naming the invalid value.
void check_options(const SampleOptions& options);

// Temperature first, then top_k, then top_p, as transformers orders them. The lower id wins among
// equal logits. The draw depends only on (seed, prompt, position), so neither the batch nor the
// order of work changes it. RunError where a logit is not finite.
int32_t sample_token(std::span<const float> logits, const SampleOptions& options, uint64_t prompt,
                     uint64_t position);

}  // namespace weft
