// checkpoint/rank_file.h: one rank's file of a checkpoint: its layout, its bytes, its index.
#pragma once

#include <filesystem>
#include <functional>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/index.h"
#include "checkpoint/slice_hash.h"
#include "io/safetensors.h"

namespace weft {

class RankFile {
 public:
  // How bytes of a slice get to the host; null: they are there.
  using Read = std::function<void(void* to, const void* from, size_t bytes)>;

  // BugError where a slice is not within its tensor. The slices' memory is only read by the calls
  // below.
  RankFile(std::vector<Slice> slices, int rank);
  size_t bytes() const { return plan_.file_bytes(); }

  // Where its slices are; without checksums.
  IndexPart index() const;
  // The whole file in memory: `image` has bytes().
  void copy_to(std::byte* image, const Read& read) const;

  // Both write and sync folder/rank-NNNNN.safetensors, and return its part of the index. RunError
  // where the disk is full.
  IndexPart write_image(const std::filesystem::path& folder, const std::byte* image) const;
  // From the slices themselves, a few blocks at a time.
  IndexPart write(const std::filesystem::path& folder, const Read& read) const;

 private:
  void add_to_index(const TensorInfo& info, SliceHash* hash, IndexPart* part) const;
  const Slice& slice_of(const TensorInfo& info) const { return slices_[by_name_.at(info.name)]; }

  std::vector<Slice> slices_;
  std::string name_;
  std::map<std::string, size_t> by_name_;  // of the file
  SafetensorsPlan plan_;
};

}  // namespace weft
