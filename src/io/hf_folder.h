// io/hf_folder.h: a Hugging Face model folder: its configuration and its tensors, in one file or
// many.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "io/safetensors.h"
#include "io/tensor_file.h"

namespace weft {

class HfFolder {
 public:
  // Reads config.json. UserError where the folder or the file is missing; hub names (Org/Name,
  // Org/Name@revision) are looked up in the cache (HF_HOME) by resolve_model_path.
  explicit HfFolder(const std::filesystem::path& path);
  const std::filesystem::path& path() const { return path_; }  // of config.json and the tokenizer
  const Json& config() const { return config_; }

  bool has_weights() const;  // there is a file that open_weights() would read
  // Opens model.safetensors or the shards of model.safetensors.index.json; where neither is there,
  // pytorch_model.bin or the shards of its index. UserError naming the file that is missing. Called
  // by the first find() or tensor_names(): not thread-safe.
  void open_weights() const;
  struct Found {
    const TensorFile* file;
    const TensorInfo* info;
  };
  // file null where the folder has no such tensor; UserError where it has one that cannot be read.
  Found find(const std::string& name) const;
  using Files = std::vector<std::unique_ptr<const TensorFile>>;
  const Files& files() const;
  std::vector<std::string> tensor_names() const;

  // Files that a copy of the model keeps: generation_config.json where there is one.
  std::map<std::string, std::string> side_files() const;

 private:
  std::filesystem::path path_;
  std::optional<std::filesystem::path> foreign_;  // the folder of the weights
  Json config_;
  const TensorFile& open_file(const std::filesystem::path& file) const;
  void open_shards(const std::string& index_name) const;

  mutable bool open_ = false;
  mutable Files files_;
  mutable std::map<std::string, size_t> where_;  // tensor to place in files_
};

// Whether the folder has model.safetensors, pytorch_model.bin, or an index of either.
bool has_hf_weights(const std::filesystem::path& folder);

// Folders of weights that other programs write, for a room above that reads them
// (checkpoint/model_files.h).
struct ForeignWeights {
  // The folder that has config.json; none where `folder` is no such folder. UserError where it is
  // one without.
  std::optional<std::filesystem::path> (*find_config)(const std::filesystem::path& folder);
  std::unique_ptr<const TensorFile> (*open)(const std::filesystem::path& folder);
};
// From here on HfFolder opens them too; called once, before other threads start.
void set_foreign_weights(const ForeignWeights& foreign);

// An existing folder; else a hub name in the Hugging Face cache; else UserError with the download
// command.
std::filesystem::path resolve_model_path(const std::string& path_or_name);

// hf://datasets/NAME/FILE as a path in the Hugging Face cache, where NAME is Org/Name[@revision].
// The dataset must be in the cache; FILE may be a folder or a pattern.
bool is_hf_dataset(std::string_view path);
std::string resolve_hf_dataset(const std::string& uri);

}  // namespace weft
