// checkpoint/slice_hash.cpp: both hashes of a piece are taken while it is in the processor's cache.
#include "checkpoint/slice_hash.h"

#include <algorithm>
#include <utility>

#include "checkpoint/index.h"

namespace weft {
namespace {

constexpr size_t kStretch = size_t{32} << 10;  // fits the first cache

}  // namespace

SliceHash::SliceHash(size_t slice_bytes)
    : has_blocks_(slice_bytes > kCheckedBlock), block_(std::make_unique<HashStream>()) {}

void SliceHash::add(const std::byte* data, size_t size) {
  while (size > 0) {
    const size_t n = std::min({size, kCheckedBlock - in_block_, kStretch});
    whole_.add(data, n);
    if (has_blocks_) block_->add(data, n);
    data += n;
    size -= n;
    in_block_ += n;
    if (in_block_ == kCheckedBlock) end_block();
  }
}

void SliceHash::end_block() {
  if (has_blocks_) blocks_.push_back(block_->value());
  if (has_blocks_) block_ = std::make_unique<HashStream>();
  in_block_ = 0;
}

std::vector<uint64_t> SliceHash::blocks() {
  if (in_block_ > 0) end_block();
  return std::move(blocks_);
}

}  // namespace weft
