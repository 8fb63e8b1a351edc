// tests/checkpoint/read_back.h: what is stored, as readers of every kind of storage see it.
#pragma once

#include <filesystem>
#include <vector>

#include "checkpoint/digest.h"
#include "checkpoint/logical.h"

namespace weft::testing {

inline ModelDigest digest_of(const std::filesystem::path& path) {
  return digest_model(open_logical(path.string()));
}

inline std::vector<float> read_all(const LogicalTensor& t) {
  std::vector<float> values(static_cast<size_t>(num_elements(t.shape)));
  t.read(0, num_elements(t.shape), values.data());
  return values;
}

}  // namespace weft::testing
