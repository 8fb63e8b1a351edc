// tests/golden/golden_set.h: what PyTorch computed for one small model
// (tests/golden/data/README.md).
#pragma once

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"
#include "config/run_config.h"
#include "data/batches.h"
#include "io/hf_folder.h"
#include "io/safetensors.h"
#include "model/head_in_files.h"
#include "model/model.h"
#include "tests/batch_lists.h"

namespace weft {

inline std::filesystem::path golden_root() {
  const char* given = std::getenv("WEFT_GOLDEN_DIR");
  return given ? given : "tests/golden/data";
}

// Or those that WEFT_GOLDEN_SETS lists, with commas between them.
inline std::vector<std::string> golden_names() {
  if (const char* given = std::getenv("WEFT_GOLDEN_SETS")) {
    std::vector<std::string> names(1);
    for (const char* c = given; *c != 0; ++c) {
      if (*c == ',') {
        names.emplace_back();
      } else {
        names.back() += *c;
      }
    }
    return names;
  }
  return {"tiny_llama",    //
          "qwen2_gqa",     //
          "llama_rope",    //
          "llama_256",     //
          "qwen2_window",  //
          "qwen3",         //
          "mistral",       //
          "gpt2",          //
          "gemma3",        //
          "bloom",         //
          "t5",            //
          "t5_v11"};
}

class GoldenSet {
 public:
  explicit GoldenSet(const std::string& name)
      : folder_(golden_root() / name / "model"),
        file_(golden_root() / name / "golden.safetensors"),
        model_(make_model(config_in_force(folder_), {.dropout = 0.0})) {
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
    const int64_t R = shape[shape.size() - 2];
    Batch b;
    testing::BatchLists lists;
    lists.ids = rows(prefix, "input_ids", s);
    lists.lengths = rows(prefix, "lengths", s);
    lists.targets = has(prefix + "targets")
                        ? rows(prefix, "targets", s)
                        : testing::next_tokens(lists.ids, lists.lengths, shape.back());
    if (has(prefix + "source_ids")) {
      lists.source_ids = rows(prefix, "source_ids", s);
      lists.source_lengths = rows(prefix, "source_lengths", s);
    }
    b.target_tokens = std::count_if(lists.targets.begin(), lists.targets.end(),
                                    [](int32_t target) { return target >= 0; });
    for (size_t i = 0; i < lists.ids.size(); ++i)
      lists.positions.push_back(static_cast<int32_t>(i % static_cast<size_t>(shape.back())));
    lists.put(shape.back(), &b);
    b.positions = R * (b.padded.target + b.padded.source);
    return b;
  }

  RunConfig config(int64_t rows, int64_t positions, int64_t micro_batch) const {
    RunConfig c;
    c.train.global_batch = rows;
    c.train.micro_batch = micro_batch;
    c.data.seq_length = positions;
    if (has("source_ids")) {  // seq_length is the source's
      c.data.target_length = positions;
      c.data.seq_length = info("source_ids").shape.back();
    }
    return c;
  }

 private:
  // All of a tensor without a step, or the s-th part of its steps.
  std::vector<int32_t> rows(const std::string& prefix, const char* name, int64_t s) const {
    const std::vector<int32_t> all = read<int32_t>(prefix + name);
    if (prefix.empty()) return all;
    const int64_t size = num_elements(info(prefix + name).shape) / info(prefix + name).shape[0];
    return {all.begin() + s * size, all.begin() + (s + 1) * size};
  }

  HfFolder folder_;
  SafetensorsFile file_;
  std::unique_ptr<Model> model_;
};

}  // namespace weft
