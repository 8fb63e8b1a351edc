// train/model_samples.cpp: hashes small files whole, and weights by samples or whole.
#include "train/model_samples.h"

#include <algorithm>
#include <limits>
#include <map>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/path.h"
#include "checkpoint/checkpoint.h"
#include "data/file_samples.h"

namespace weft {
namespace fs = std::filesystem;
namespace {

constexpr FileSampling kWeights = {64, std::numeric_limits<size_t>::max()};
constexpr size_t kMostCommittedBytes = size_t{64} << 20;

// A checkpoint of another program is a folder.
std::vector<FileInfo> files_of_weights(const Session& session) {
  std::vector<FileInfo> infos;
  if (session.config.model.init == "random") return infos;
  for (const auto& file : session.folder.files()) {
    if (path_kind(file->path()) == PathKind::kFile) {
      infos.push_back(file_info(file->path().string()));
      continue;
    }
    std::vector<FileInfo> below;
    for (const auto& entry : fs::recursive_directory_iterator(file->path())) {
      if (entry.is_regular_file()) below.push_back(file_info(entry.path().string()));
    }
    std::sort(below.begin(), below.end(),
              [](const FileInfo& a, const FileInfo& b) { return a.path < b.path; });
    infos.insert(infos.end(), below.begin(), below.end());
  }
  return infos;
}

std::string describe_headers(const Session& session) {
  std::string text;
  if (session.config.model.init == "random") return text;
  for (const auto& file : session.folder.files()) {
    std::string header;
    for (const TensorInfo& t : file->tensors())
      header += fmt::format("{} {} {} {} {}\n", t.name, dtype_name(t.dtype), to_string(t.shape),
                            t.begin, t.end);
    text += fmt::format("{}, {} tensors, {}\n", file->path().filename().string(),
                        file->tensors().size(), hash_hex(hash_text(header)));
  }
  return text;
}

}  // namespace

std::string describe_model_files(const Session& session) {
  std::map<std::string, std::string> files = session.folder.side_files();
  for (auto& [name, bytes] : session.tokenizer->files()) files[name] = bytes;
  files["config.json"] = session.folder.config().dump();
  std::string text;
  for (const auto& [name, bytes] : files)
    text += fmt::format("{}, {} bytes, {}\n", name, bytes.size(), hash_hex(hash_text(bytes)));
  return text + describe_headers(session) + describe_files(files_of_weights(session), kWeights);
}

std::string describe_whole_weights(const Session& session) {
  return describe_whole_files(files_of_weights(session), kReadThreads);
}

std::string describe_checkpoint(const fs::path& checkpoint) {
  if (!is_checkpoint(checkpoint)) return fmt::format("{}: no checkpoint\n", checkpoint.string());
  return read_file(checkpoint / "COMMITTED", kMostCommittedBytes);
}

}  // namespace weft
