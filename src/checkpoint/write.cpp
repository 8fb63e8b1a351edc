// checkpoint/write.cpp: a rank's slices into the folder being written; the commit.
#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/path.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/index.h"
#include "checkpoint/rank_file.h"
#include "checkpoint/replace_folder.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

void write_rank(const fs::path& folder, const WriteFile& write_file, const Json& state,
                const std::map<std::string, std::string>& side_files, int rank, int num_ranks) {
  make_folder(folder);
  const IndexPart part = write_file(folder);
  if (rank == 0) {
    write_synced(folder / kStateFile, state.dump(1) + "\n");
    for (const auto& [name, bytes] : side_files) {
      ensure(!is_own_file(name), fmt::format("side file {} has a reserved name", name));
      write_synced(folder / name, bytes);
    }
  }
  write_synced(folder / part_file(rank),
               index_to_json(part.tensors, part.headers, num_ranks).dump() + "\n");
  sync_directory(folder);
}

IndexPart merge_parts(const fs::path& folder, int num_ranks) {
  IndexPart all;
  for (int rank = 0; rank < num_ranks; ++rank) {
    const fs::path file = folder / part_file(rank);
    const Json part = parse_json(read_file(file), file.string());
    ensure(part.at("num_ranks") == Json(num_ranks),
           fmt::format("{} is of {} ranks, wanted {}", file.string(), part.at("num_ranks").dump(),
                       num_ranks));
    merge_tensors(all.tensors, index_from_json(part, file.string()));
    all.headers.merge(headers_from_json(part, file.string()));
  }
  const std::string fault = coverage_fault(all.tensors);
  ensure(fault.empty(), fault);
  return all;
}

// Parts, and rank files left behind by a larger, failed attempt.
void remove_leftovers(const fs::path& folder, int num_ranks) {
  std::set<std::string> wanted;
  for (int rank = 0; rank < num_ranks; ++rank) wanted.insert(rank_file(rank));
  std::vector<fs::path> gone;
  for (const std::string& name : folder_names(folder)) {
    const bool of_a_rank = name.starts_with("rank-") || name.starts_with("index-rank-");
    if (is_own_file(name) && of_a_rank && !wanted.contains(name)) gone.push_back(folder / name);
  }
  for (const fs::path& path : gone) remove_folder(path);
}

// "name hash", one line per file whose bytes the index does not cover.
std::string hashes_of_files(const fs::path& folder) {
  std::string lines;
  for (const std::string& name : folder_names(folder)) {
    if (name.starts_with("rank-") && is_own_file(name)) continue;
    lines += fmt::format("{} {}\n", name, hash_hex(hash_text(read_file(folder / name))));
  }
  return lines;
}

}  // namespace

Region region_of(const Slice& s) {
  return {s.offset, s.extent, s.flat_begin, s.flat_end < 0 ? num_elements(s.extent) : s.flat_end};
}

Slice whole_tensor(std::string name, Shape shape, Dtype dtype, void* data) {
  Shape zero(shape.size(), 0);
  Shape extent = shape;
  return {
      std::move(name), std::move(shape), dtype, std::move(zero), std::move(extent), 0, -1, data};
}

void prepare_checkpoint(const fs::path& folder) {
  remove_folder(writing_folder(folder));
  make_folder(writing_folder(folder));
}

void discard_checkpoint(const fs::path& folder) {
  std::error_code ignored;  // the error that ended the save is the one to report
  fs::remove_all(writing_folder(folder), ignored);
}

void commit_checkpoint(const fs::path& folder, int num_ranks, const MayCommit& may_commit) {
  const fs::path writing = writing_folder(folder);
  const IndexPart all = merge_parts(writing, num_ranks);
  const std::string index = index_to_json(all.tensors, all.headers, num_ranks).dump() + "\n";
  write_synced(writing / kIndexFile, index);
  remove_leftovers(writing, num_ranks);
  sync_directory(writing);
  const std::string hashes = hashes_of_files(writing);
  if (may_commit) may_commit();
  write_synced(writing / kCommittedFile, hashes);
  sync_directory(writing);
  if (may_commit) may_commit();
  replace_folder(writing, folder);
}

void write_checkpoint(const fs::path& folder, const std::vector<Slice>& slices, const Json& state,
                      const std::map<std::string, std::string>& side_files, int rank,
                      int num_ranks) {
  write_checkpoint(
      folder, [&](const fs::path& into) { return RankFile(slices, rank).write(into, nullptr); },
      state, side_files, rank, num_ranks);
}

void write_checkpoint(const fs::path& folder, const WriteFile& write_file, const Json& state,
                      const std::map<std::string, std::string>& side_files, int rank, int num_ranks,
                      const MayCommit& may_commit) {
  const fs::path writing = writing_folder(folder);
  bool is_refused = false;
  const MayCommit check = [&] {
    is_refused = true;
    if (may_commit) may_commit();
    is_refused = false;
  };
  try {
    if (num_ranks == 1) prepare_checkpoint(folder);
    write_rank(writing, write_file, state, side_files, rank, num_ranks);
    if (num_ranks == 1) commit_checkpoint(folder, num_ranks, check);
  } catch (...) {
    std::error_code ignored;  // frees the space; the first error is the one to report
    if (is_refused) throw;
    if (num_ranks == 1) {
      fs::remove_all(writing, ignored);
    } else {
      fs::remove(writing / rank_file(rank), ignored);
      fs::remove(writing / part_file(rank), ignored);
    }
    throw;
  }
}

}  // namespace weft
