// checkpoint/compare.h: two models tensor by tensor.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/logical.h"

namespace weft {

struct TensorDifference {
  std::string name;
  std::string fault;  // "only in A", different shape or dtype; empty where only values differ
  int64_t num_elements = 0;   // compared; 0 where the shapes differ
  int64_t num_different = 0;  // in bits; in value where dtypes differ
  int64_t first = -1;         // row-major index of the first that differs
  Shape first_index;
  double first_a = 0, first_b = 0;
  double max_difference = 0;  // absolute; NaN where only one of the two is NaN
};
std::string to_string(const TensorDifference& d);  // one line

struct Comparison {
  std::vector<TensorDifference> differences;  // only what differs, by name, weights first
  int64_t num_compared = 0;
  bool states_compared = false;  // both models have them
};
Comparison compare_models(const LogicalModel& a, const LogicalModel& b);

}  // namespace weft
