// data/pack_counts.cpp: reads row tables block by block, and stores counts in a small JSON file.
#include "data/pack_counts.h"

#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/path.h"
#include "data/cache_store.h"

namespace weft {
namespace {

constexpr size_t kMostCountsBytes = size_t{1} << 20;  // thousands of epochs

// The file's entries: key to {rows, sequences, tokens, positions}, after a line with their hash.
Json read_counts(const std::filesystem::path& path) {
  try {
    if (path_kind(path) == PathKind::kNothing) return {Json::Object{}};
    const std::string text = read_file(path, kMostCountsBytes);
    const size_t line = text.find('\n');
    if (line == std::string::npos || text.substr(0, line) != hash_hex(hash_text(text.substr(line))))
      return {Json::Object{}};
    return parse_json(text.substr(line), path.string());
  } catch (const Error&) {
    return {Json::Object{}};
  }
}

}  // namespace

RowLength RowLengths::of(int64_t row) {
  const int64_t block = row / cache_.block_rows();
  auto found = tables_.find(block);
  if (found == tables_.end()) {
    if (tables_.size() >= kMostTables) tables_.clear();
    found = tables_.emplace(block, cache_.read_lengths(block)).first;
  }
  return found->second[static_cast<size_t>(row % cache_.block_rows())];
}

std::optional<PackSize> find_pack_size(const std::filesystem::path& folder,
                                       const std::string& key) {
  if (folder.empty()) return std::nullopt;
  const Json counts = read_counts(folder / kCacheCounts);
  const Json* found = counts.find(key);
  if (!found) return std::nullopt;
  const Json::Array& n = found->as_array();
  return PackSize{n.at(0).as_int(), n.at(1).as_int(), n.at(2).as_int(), n.at(3).as_int()};
}

void keep_pack_size(const std::filesystem::path& folder, const std::string& key,
                    const PackSize& size) {
  if (folder.empty()) return;
  Json counts = read_counts(folder / kCacheCounts);
  counts.set(key, Json(Json::Array{Json(size.rows), Json(size.sequences), Json(size.tokens),
                                   Json(size.positions)}));
  const std::string text = "\n" + counts.dump() + "\n";
  if (text.size() > kMostCountsBytes / 2) return;
  try {
    write_file_atomic(folder / kCacheCounts, hash_hex(hash_text(text)) + text);
  } catch (const RunError&) {
  }
}

}  // namespace weft
