// model/inputs.h: what a model reads from a batch.
#pragma once

#include <string>
#include <vector>

#include "tensor/dtype.h"

namespace weft {

// B, T, S (tensor/lengths.h), and constants.
enum class Dim { kRows, kTarget, kSource, kOne, kTwo };

struct InputSpec {
  std::string name;       // tensor/names.h
  std::vector<Dim> dims;  // the first is kRows: batches are cut by rows
  Dtype dtype;
  int64_t fill;  // for rows missing from a short batch
};

}  // namespace weft
