// tests/checkpoint/two_tensors.h: a small checkpoint to write, damage and read back.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/file.h"
#include "checkpoint/checkpoint.h"
#include "tests/checkpoint/recut.h"

namespace weft::testing {

inline Json state_of(int64_t step) {
  Json state;
  state.set("step", step);
  return state;
}

// A checkpoint of two tensors, whose elements start at `first`.
inline void write_two(const std::filesystem::path& folder, float first, int64_t step = 1) {
  std::vector<float> a = numbered({6, 4}, first), m = numbered({6, 4}, first + 100);
  write_checkpoint(folder,
                   {whole_tensor("a.weight", {6, 4}, Dtype::kF32, a.data()),
                    whole_tensor("a.weight#m", {6, 4}, Dtype::kF32, m.data())},
                   state_of(step), {{"config.json", "{}"}, {"tokenizer.json", "[]"}});
}

inline std::vector<float> read_a(const std::filesystem::path& folder) {
  std::vector<float> data(24);
  CheckpointReader(folder).read(whole_tensor("a.weight", {6, 4}, Dtype::kF32, data.data()));
  return data;
}

inline void flip_byte(const std::filesystem::path& file, int64_t at) {
  std::string bytes = read_file(file);
  if (at < 0) at += static_cast<int64_t>(bytes.size());
  bytes[static_cast<size_t>(at)] = static_cast<char>(bytes[static_cast<size_t>(at)] ^ 1);
  std::ofstream(file, std::ios::binary) << bytes;
}

}  // namespace weft::testing
