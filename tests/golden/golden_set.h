// tests/golden/golden_set.h: what PyTorch computed for one small model
// (tests/golden/data/README.md).
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"
#include "config/run_config.h"
#include "data/batches.h"
#include "io/hf_folder.h"
#include "io/safetensors.h"
#include "model/model.h"
#include "tests/batch_lists.h"

namespace weft {

inline std::filesystem::path golden_root() {
  const char* given = std::getenv("WEFT_GOLDEN_DIR");
  return given ? given : "tests/golden/data";
}

inline std::vector<std::string> golden_names() {
  return {"tiny_llama", "qwen2_gqa", "llama_rope", "llama_256"};
}

class GoldenSet {
 public:
  explicit GoldenSet(const std::string& name)
      : folder_(golden_root() / name / "model"),
        file_(golden_root() / name / "golden.safetensors"),
        model_(make_model(folder_.config(), {})) {
    folder_.open_weights();
  }
  const HfFolder& folder() const { return folder_; }
  const Model& model() const { return *model_; }
  bool has(const std::string& name) const { return file_.find(name) != nullptr; }
  const SafetensorsFile& file() const { return file_; }

  const TensorInfo& info(const std::string& name) const {
    const TensorInfo* found = file_.find(name);
    if (!found) throw UserError("the golden set has no " + name);
    return *found;
  }
  template <typename T>
  std::vector<T> read(const std::string& name) const {
    const TensorInfo& t = info(name);
    const T* data = reinterpret_cast<const T*>(file_.data(t));
    return {data, data + num_elements(t.shape)};
  }
  double scalar(const std::string& name) const { return read<double>(name)[0]; }

  // Rows [0, R) of (R, T) ids (of step s where the tensor is (S, R, T)), as the trainer gets them.
  Batch batch(const std::string& prefix, int64_t s) const {
    const Shape shape = info(prefix + "input_ids").shape;
    const std::vector<int32_t> ids = read<int32_t>(prefix + "input_ids");
    const std::vector<int32_t> lengths = read<int32_t>(prefix + "lengths");
    const int64_t T = shape.back(), R = shape[shape.size() - 2];
    Batch b;
    testing::BatchLists lists;
    lists.ids.assign(ids.begin() + s * R * T, ids.begin() + (s + 1) * R * T);
    lists.lengths.assign(lengths.begin() + s * R, lengths.begin() + (s + 1) * R);
    lists.targets.assign(static_cast<size_t>(R * T), -1);
    for (int64_t r = 0; r < R; ++r) {
      for (int64_t t = 0; t + 1 < lists.lengths[static_cast<size_t>(r)]; ++t) {
        lists.targets[static_cast<size_t>(r * T + t)] =
            lists.ids[static_cast<size_t>(r * T + t + 1)];
        ++b.target_tokens;
      }
    }
    lists.put(T, &b);
    b.positions = R * T;
    return b;
  }

  RunConfig config(int64_t rows, int64_t positions, int64_t micro_batch) const {
    RunConfig c;
    c.train.global_batch = rows;
    c.train.micro_batch = micro_batch;
    c.data.seq_length = positions;
    return c;
  }

 private:
  HfFolder folder_;
  SafetensorsFile file_;
  std::unique_ptr<Model> model_;
};

}  // namespace weft
