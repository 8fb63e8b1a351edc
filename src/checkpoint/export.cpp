// checkpoint/export.cpp: a Hugging Face folder: shards, their index, config, side files.
#include "checkpoint/export.h"

#include <algorithm>

#include "base/error.h"
#include "base/path.h"
#include "checkpoint/export_folder.h"
#include "checkpoint/replace_folder.h"
#include "io/safetensors.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

struct Shard {
  std::string file;
  std::vector<const LogicalTensor*> tensors;
  size_t bytes = 0;
};

// Filled in order; a tensor larger than a shard gets its own.
std::vector<Shard> make_shards(const std::vector<LogicalTensor>& weights,
                               const ExportOptions& options) {
  std::vector<Shard> shards(1);
  for (const LogicalTensor& t : weights) {
    const auto bytes =
        static_cast<size_t>(num_elements(t.shape) * dtype_bytes(exported_dtype(t, options)));
    const bool full = shards.back().bytes + bytes > options.max_shard_bytes;
    if (full && !shards.back().tensors.empty()) shards.emplace_back();
    shards.back().tensors.push_back(&t);
    shards.back().bytes += bytes;
  }
  for (size_t i = 0; i < shards.size(); ++i) {
    shards[i].file = shards.size() == 1
                         ? "model.safetensors"
                         : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
  }
  return shards;
}

void write_shard(const fs::path& folder, const Shard& shard, const ExportOptions& options) {
  std::vector<TensorInfo> infos;
  std::map<std::string, const LogicalTensor*> by_name;
  for (const LogicalTensor* t : shard.tensors) {
    infos.push_back({t->name, exported_dtype(*t, options), t->shape, 0, 0});
    by_name[t->name] = t;
  }
  SafetensorsWriter out(folder / shard.file, std::move(infos), {{"format", "pt"}});
  const auto write = [&](const void* bytes, size_t size) { out.write(bytes, size); };
  for (const TensorInfo& info : out.tensors())
    stream_elements(*by_name[info.name], info.dtype, 0, num_elements(info.shape), write);
  out.finish();
}

Json shard_index(const std::vector<Shard>& shards) {
  uint64_t total = 0;
  Json::Object map;
  for (const Shard& shard : shards) {
    total += shard.bytes;
    for (const LogicalTensor* t : shard.tensors) map.emplace_back(t->name, shard.file);
  }
  Json metadata, index;
  metadata.set("total_size", total);
  index.set("metadata", std::move(metadata));
  index.set("weight_map", std::move(map));
  return index;
}

void write_folder(const fs::path& folder, const std::vector<LogicalTensor>& weights,
                  const Json& config, const std::map<std::string, std::string>& side_files,
                  const ExportOptions& options) {
  const std::vector<Shard> shards = make_shards(weights, options);
  for (const Shard& shard : shards) write_shard(folder, shard, options);
  if (shards.size() > 1) {
    write_synced(folder / "model.safetensors.index.json", shard_index(shards).dump(2) + "\n");
  }
  write_config_files(folder, weights, config, side_files, options);
}

}  // namespace

bool is_export(const fs::path& folder) {
  if (path_kind(folder / "config.json") == PathKind::kNothing) return false;
  const std::vector<std::string> names = folder_names(folder);
  return std::any_of(names.begin(), names.end(), [](const std::string& name) {
    return name.starts_with("model") && name.ends_with(".safetensors");
  });
}

void export_hf(const std::vector<LogicalTensor>& weights, const Json& config,
               const std::map<std::string, std::string>& side_files, const fs::path& out,
               const ExportOptions& options) {
  require(config.is_object(), "the model has no config.json, which {} needs", out.string());
  write_export(out, options, is_export, [&](const fs::path& folder) {
    write_folder(folder, weights, config, side_files, options);
  });
}

}  // namespace weft
