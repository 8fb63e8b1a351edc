// checkpoint/export.h: logical tensors as a Hugging Face folder.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "checkpoint/logical.h"

namespace weft {

struct ExportOptions {
  std::optional<Dtype> dtype;  // of the floating tensors; absent: as they are stored
  size_t max_shard_bytes = 5'000'000'000;
  bool overwrite = false;  // an existing export; anything else is never overwritten
};

// Writes out.writing (config.json with the dtype, model.safetensors or shards and their index, the
// side files), syncs, then renames it to `out`. Only a piece of a tensor is in memory at a time.
// UserError where `out` exists; RunError where the disk is full, and `out` is then unchanged.
void export_hf(const std::vector<LogicalTensor>& weights, const Json& config,
               const std::map<std::string, std::string>& side_files,
               const std::filesystem::path& out, const ExportOptions& options);

// config.json and model*.safetensors: what export_hf may replace.
bool is_export(const std::filesystem::path& folder);

}  // namespace weft
