// checkpoint/export.cpp: config, shards, index, side files; the folder appears when it is complete.
#include "checkpoint/export.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/file.h"
#include "base/mapped_files.h"
#include "base/path.h"
#include "checkpoint/index.h"
#include "checkpoint/replace_folder.h"
#include "io/safetensors.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
constexpr int64_t kPiece = 1 << 20;  // elements converted at a time

bool is_floating(Dtype d) {
  return d == Dtype::kF32 || d == Dtype::kBf16 || d == Dtype::kF16 || d == Dtype::kF64;
}

const char* torch_name(Dtype d) {
  switch (d) {
    case Dtype::kBf16:
      return "bfloat16";
    case Dtype::kF16:
      return "float16";
    case Dtype::kF64:
      return "float64";
    default:
      return "float32";
  }
}

Dtype stored_as(const LogicalTensor& t, const ExportOptions& options) {
  return options.dtype && is_floating(t.dtype) ? *options.dtype : t.dtype;
}

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
        static_cast<size_t>(num_elements(t.shape) * dtype_bytes(stored_as(t, options)));
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

void write_tensor(const LogicalTensor& t, Dtype dtype, SafetensorsWriter& out) {
  const int64_t n = num_elements(t.shape);
  const int64_t piece = std::min(n, kPiece);
  std::vector<std::byte> from(static_cast<size_t>(piece * dtype_bytes(t.dtype)));
  std::vector<std::byte> to(static_cast<size_t>(piece * dtype_bytes(dtype)));
  for (int64_t at = 0; at < n; at += piece) {
    const int64_t count = std::min(piece, n - at);
    t.read(at, at + count, from.data());
    convert_elements(from.data(), t.dtype, to.data(), dtype, count);
    out.write(to.data(), static_cast<size_t>(count * dtype_bytes(dtype)));
  }
}

void write_shard(const fs::path& folder, const Shard& shard, const ExportOptions& options) {
  std::vector<TensorInfo> infos;
  std::map<std::string, const LogicalTensor*> by_name;
  for (const LogicalTensor* t : shard.tensors) {
    infos.push_back({t->name, stored_as(*t, options), t->shape, 0, 0});
    by_name[t->name] = t;
  }
  SafetensorsWriter out(folder / shard.file, std::move(infos), {{"format", "pt"}});
  for (const TensorInfo& info : out.tensors()) write_tensor(*by_name[info.name], info.dtype, out);
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

// The dtype of most elements, under the key that the configuration uses: transformers 4 writes
// torch_dtype, 5 writes dtype.
Json with_dtype(Json config, const std::vector<LogicalTensor>& weights,
                const ExportOptions& options) {
  std::map<Dtype, int64_t> counts;
  for (const LogicalTensor& t : weights) {
    if (is_floating(t.dtype)) counts[stored_as(t, options)] += num_elements(t.shape);
  }
  if (counts.empty()) return config;
  const auto most =
      std::max_element(counts.begin(), counts.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  const char* name = torch_name(most->first);
  if (config.find("dtype")) config.set("dtype", name);
  if (config.find("torch_dtype") || !config.find("dtype")) config.set("torch_dtype", name);
  return config;
}

void check_place(const fs::path& out, const ExportOptions& options) {
  const PathKind kind = path_kind(out);
  if (kind == PathKind::kNothing) return;
  require(kind == PathKind::kFolder, "{} is a file, wanted a new folder", out.string());
  if (folder_names(out).empty()) return;
  if (!is_export(out)) {
    throw UserError(fmt::format("{} is not empty and not an export", out.string()),
                    "give a new folder");
  }
  if (!options.overwrite) {
    throw UserError(fmt::format("{} already holds an export", out.string()),
                    "give a new folder, or --overwrite to replace it");
  }
}

void write_folder(const fs::path& folder, const std::vector<LogicalTensor>& weights,
                  const Json& config, const std::map<std::string, std::string>& side_files,
                  const ExportOptions& options) {
  remove_folder(folder);
  make_folder(folder);
  const std::vector<Shard> shards = make_shards(weights, options);
  for (const Shard& shard : shards) write_shard(folder, shard, options);
  if (shards.size() > 1) {
    write_synced(folder / "model.safetensors.index.json", shard_index(shards).dump(2) + "\n");
  }
  for (const auto& [name, bytes] : side_files) write_synced(folder / name, bytes);
  const Json typed = with_dtype(config, weights, options);
  write_synced(folder / "config.json", typed.dump(2, Json::Digits::kShortest) + "\n");
  sync_directory(folder);
  check_mapped_files();  // zeros from a truncated file must not be published
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
  fs::path place = out.has_filename() ? out : out.parent_path();  // without a trailing slash
  check_place(place, options);
  const fs::path writing = writing_folder(place);
  try {
    write_folder(writing, weights, config, side_files, options);
    replace_folder(writing, place);
  } catch (...) {
    std::error_code ignored;  // frees the space; the first error is the one to report
    fs::remove_all(writing, ignored);
    throw;
  }
}

}  // namespace weft
