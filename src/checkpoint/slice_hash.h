// checkpoint/slice_hash.h: the checksums of a slice: of all of it, and of its blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/hash_stream.h"

namespace weft {

class SliceHash {
 public:
  explicit SliceHash(size_t slice_bytes);  // all that will be added
  void add(const std::byte* data, size_t size);
  uint64_t checksum() const { return whole_.value(); }
  std::vector<uint64_t> blocks();  // after the last byte; empty: one block at most

 private:
  void end_block();

  const bool has_blocks_;
  HashStream whole_;
  std::unique_ptr<HashStream> block_;
  size_t in_block_ = 0;
  std::vector<uint64_t> blocks_;
};

}  // namespace weft
