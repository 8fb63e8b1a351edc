// checkpoint/checkpoint.h: a training state as a folder of safetensors slices with an index.
//
// index.json lists logical tensors; COMMITTED is written last. A folder without it is not a
// checkpoint.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "checkpoint/index.h"
#include "checkpoint/slice_reader.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace weft {

inline constexpr std::string_view kMaster = "#master";  // after a parameter's name

// What one rank holds of a logical tensor: a box of it (offset and extent per dimension), or a flat
// range of that box in row-major order (the ZeRO cut). A whole tensor: offset 0, extent = shape.
struct Slice {
  std::string name;  // logical: Hugging Face's, states as name#m, name#v, masters as name#master
  Shape shape;       // of the logical tensor
  Dtype dtype;
  Shape offset, extent;
  int64_t flat_begin = 0;
  int64_t flat_end = -1;  // -1: the whole box
  void* data = nullptr;   // read from when writing, written to when reading
};
Slice whole_tensor(std::string name, Shape shape, Dtype dtype, void* data);
Region region_of(const Slice& slice);

// Whether this process may still commit: throws where it may not. Called directly before COMMITTED
// is written, and again before the folder gets its name.
using MayCommit = std::function<void()>;

// Writes the slices of rank `rank` of `num_ranks` into folder.writing: rank-NNNNN.safetensors; rank
// 0 also state.json and the side files. Everything is synced. RunError where the disk is full; an
// older checkpoint is then intact.
//   One rank: that is all; the folder is committed and renamed, replacing an older one of that name
//     at the very end. Where may_commit throws, it is not, and what was written stays: the folder
//     may be that of the process which may.
//   Several: rank 0 calls prepare_checkpoint (deleting leftovers of a failed attempt), barrier, all
//     write, barrier, rank 0 calls commit_checkpoint; where a rank has failed, discard_checkpoint.
void write_checkpoint(const std::filesystem::path& folder, const std::vector<Slice>& slices,
                      const Json& state, const std::map<std::string, std::string>& side_files,
                      int rank = 0, int num_ranks = 1);
// The same with a file written otherwise (checkpoint/rank_file.h), into the folder it is given.
using WriteFile = std::function<IndexPart(const std::filesystem::path& folder)>;
void write_checkpoint(const std::filesystem::path& folder, const WriteFile& write_file,
                      const Json& state, const std::map<std::string, std::string>& side_files,
                      int rank, int num_ranks, const MayCommit& may_commit = nullptr);
void prepare_checkpoint(const std::filesystem::path& folder);
void discard_checkpoint(const std::filesystem::path& folder);  // what was written: frees the space
// Merges the ranks' parts into index.json, writes COMMITTED, renames. BugError where the slices do
// not cover every element of every tensor exactly once; what may_commit throws.
void commit_checkpoint(const std::filesystem::path& folder, int num_ranks,
                       const MayCommit& may_commit = nullptr);

inline constexpr size_t kReadThreads = 4;  // of one rank: they mostly wait for the disk

class CheckpointReader {
 public:
  // UserError where it is incomplete or in another weft's format; DamagedCheckpoint where bytes are
  // not those written; RunError where the system cannot read it.
  explicit CheckpointReader(const std::filesystem::path& folder);
  // The ranks' files in memory (RankFile::copy_to), by name, with their index and state.json: all
  // that hold what will be read (checkpoint/coverage.h). `name` is for messages.
  CheckpointReader(const std::string& name, StoredTensors tensors, Json state,
                   SliceReader::Images files);
  CheckpointReader(CheckpointReader&&) noexcept;
  ~CheckpointReader();
  const std::filesystem::path& folder() const { return folder_; }
  const Json& state() const { return state_; }
  const Json& index() const { return index_; }
  const StoredTensors& tensors() const { return *tensors_; }
  bool has(const std::string& name) const;
  // Fills the slice's data from whichever files hold it, whatever layout wrote them; checksums are
  // verified (DamagedCheckpoint naming tensor, file and slice). Thread-safe.
  void read(const Slice& slice) const;
  // The same in pieces, each to be read once, in any order and by any thread. Large states are read
  // fast by kReadThreads of them.
  std::vector<ReadPiece> pieces_of(const Slice& slice) const;
  void read(const Slice& slice, const ReadPiece& piece) const;
  // All but the bytes of slices: the side files and the headers (the constructor has checked the
  // rest). DamagedCheckpoint as above.
  void check_structure() const;
  void verify() const;         // every byte
  int64_t bytes_read() const;  // of slices and headers, so far

 private:
  const StoredTensor& find(const Slice& slice) const;  // UserError where it has another form

  std::filesystem::path folder_;
  Json index_, state_;
  std::map<std::string, std::string> committed_;  // file to hash
  std::unique_ptr<StoredTensors> tensors_;
  std::unique_ptr<SliceReader> files_;
};

// Whether COMMITTED exists. RunError where that cannot be determined.
bool is_checkpoint(const std::filesystem::path& folder);

}  // namespace weft
