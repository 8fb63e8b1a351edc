// checkpoint/checkpoint.h: a training state as a folder of safetensors slices with an index.
//
// index.json lists logical tensors; COMMITTED is written last. A folder without it does not exist.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace weft {

// What one rank holds of a logical tensor: a box of it (offset and extent a dimension), or a flat
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

// Writes the slices of rank `rank` of `num_ranks`, state.json and the side files (rank 0), syncs, then
// COMMITTED. An older folder of that name is replaced only at the end. RunError where the disk is
// full; then nothing of an older checkpoint is lost.
void write_checkpoint(const std::filesystem::path& folder, const std::vector<Slice>& slices,
                      const Json& state, const std::map<std::string, std::string>& side_files,
                      int rank = 0, int num_ranks = 1);

class CheckpointReader {
 public:
  explicit CheckpointReader(const std::filesystem::path& folder);  // UserError where not whole
  const Json& state() const { return state_; }
  const Json& index() const { return index_; }
  bool has(const std::string& name) const;
  // Fills the slice's data from whichever files hold it, whatever layout wrote them; checksums
  // are verified (UserError naming tensor, file and slice where damaged).
  void read(const Slice& slice) const;
  void verify() const;  // every checksum

 private:
  std::filesystem::path folder_;
  Json index_, state_;
};

// Whole checkpoints (COMMITTED present) below run_dir/checkpoints, newest last.
std::vector<std::filesystem::path> list_checkpoints(const std::filesystem::path& run_dir);
// Deletes all but the newest `keep`; best/ stays.
void prune_checkpoints(const std::filesystem::path& run_dir, int64_t keep);

}  // namespace weft
