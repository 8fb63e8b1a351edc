// checkpoint/slice_hash.cpp: blocks are hashed as they fill.
#include "checkpoint/slice_hash.h"

#include <algorithm>
#include <utility>

#include "base/hash.h"
#include "checkpoint/index.h"

namespace weft {

SliceHash::SliceHash(size_t slice_bytes)
    : has_blocks_(slice_bytes > kCheckedBlock), block_(std::make_unique<HashStream>()) {}

void SliceHash::add(const std::byte* data, size_t size) {
  while (size > 0) {
    const size_t n = std::min(size, kCheckedBlock - in_block_);
    block_->add(data, n);
    data += n;
    size -= n;
    in_block_ += n;
    if (in_block_ == kCheckedBlock && has_blocks_) end_block();
  }
}

void SliceHash::end_block() {
  blocks_.push_back(block_->value());
  block_ = std::make_unique<HashStream>();
  in_block_ = 0;
}

SliceChecksums SliceHash::finish() {
  if (!has_blocks_) return {block_->value(), {}};
  if (in_block_ > 0) end_block();
  return {hash_bytes(blocks_.data(), blocks_.size() * sizeof(uint64_t)), std::move(blocks_)};
}

}  // namespace weft
