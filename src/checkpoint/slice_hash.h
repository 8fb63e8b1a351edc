// checkpoint/slice_hash.h: the checksums of a slice: of its blocks, and of all of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/hash_stream.h"

namespace weft {

// A slice of one block at most has the checksum of its bytes and no blocks. A longer one has the
// checksums of its blocks, and as its own the hash of those (8 bytes each, little-endian): every
// byte is hashed once, which is most of what a save in the background takes from training.
struct SliceChecksums {
  uint64_t checksum = 0;
  std::vector<uint64_t> blocks;
};

class SliceHash {
 public:
  explicit SliceHash(size_t slice_bytes);  // all that will be added
  void add(const std::byte* data, size_t size);
  SliceChecksums finish();  // after the last byte

 private:
  void end_block();

  const bool has_blocks_;
  std::unique_ptr<HashStream> block_;
  size_t in_block_ = 0;
  std::vector<uint64_t> blocks_;
};

}  // namespace weft
