// checkpoint/export_folder.cpp: what the exports of all formats share.
#include "checkpoint/export_folder.h"

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/mapped_files.h"
#include "base/path.h"
#include "checkpoint/index.h"
#include "checkpoint/replace_folder.h"
#include "io/tensor_file.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

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

// The dtype of most elements, under the key that the configuration uses: transformers 4 writes
// torch_dtype, 5 writes dtype.
Json with_dtype(Json config, const std::vector<LogicalTensor>& weights,
                const ExportOptions& options) {
  std::map<Dtype, int64_t> counts;
  for (const LogicalTensor& t : weights) {
    if (is_floating(t.dtype)) counts[exported_dtype(t, options)] += num_elements(t.shape);
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

void check_place(const fs::path& out, const ExportOptions& options,
                 bool (*is_ours)(const fs::path& folder)) {
  const PathKind kind = path_kind(out);
  if (kind == PathKind::kNothing) return;
  require(kind == PathKind::kFolder, "{} is a file, wanted a new folder", out.string());
  if (folder_names(out).empty()) return;
  if (!is_ours(out)) {
    throw UserError(fmt::format("{} is not empty and not an export", out.string()),
                    "give a new folder");
  }
  if (!options.overwrite) {
    throw UserError(fmt::format("{} already holds an export", out.string()),
                    "give a new folder, or --overwrite to replace it");
  }
}

}  // namespace

bool is_floating(Dtype d) {
  return d == Dtype::kF32 || d == Dtype::kBf16 || d == Dtype::kF16 || d == Dtype::kF64;
}

Dtype exported_dtype(const LogicalTensor& t, const ExportOptions& options) {
  return options.dtype && is_floating(t.dtype) ? *options.dtype : t.dtype;
}

void stream_elements(const LogicalTensor& t, Dtype to, int64_t begin, int64_t end,
                     const WriteBytes& write) {
  const int64_t piece = std::min(end - begin, kPieceElements);
  std::vector<std::byte> read(static_cast<size_t>(piece * dtype_bytes(t.dtype)));
  std::vector<std::byte> converted(static_cast<size_t>(piece * dtype_bytes(to)));
  for (int64_t at = begin; at < end; at += piece) {
    const int64_t count = std::min(piece, end - at);
    t.read(at, at + count, read.data());
    convert_elements(read.data(), t.dtype, converted.data(), to, count);
    write(converted.data(), static_cast<size_t>(count * dtype_bytes(to)));
  }
}

void write_config_files(const fs::path& folder, const std::vector<LogicalTensor>& weights,
                        const Json& config, const std::map<std::string, std::string>& side_files,
                        const ExportOptions& options) {
  for (const auto& [name, bytes] : side_files) write_synced(folder / name, bytes);
  const Json typed = with_dtype(config, weights, options);
  write_synced(folder / "config.json", typed.dump(2, Json::Digits::kShortest) + "\n");
}

void write_export(const fs::path& out, const ExportOptions& options,
                  bool (*is_ours)(const fs::path& folder),
                  const std::function<void(const fs::path& folder)>& write) {
  const fs::path place = out.has_filename() ? out : out.parent_path();  // without a trailing slash
  check_place(place, options, is_ours);
  const fs::path writing = writing_folder(place);
  try {
    remove_folder(writing);
    make_folder(writing);
    write(writing);
    sync_directory(writing);
    check_mapped_files();  // zeros from a truncated file must not be published
    replace_folder(writing, place);
  } catch (...) {
    std::error_code ignored;  // frees the space; the first error is the one to report
    fs::remove_all(writing, ignored);
    throw;
  }
}

}  // namespace weft
