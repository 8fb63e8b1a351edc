// train/snapshot.h: a rank's state at one step, copied so that training may change the original.
//
// It is laid out as the rank's file of a checkpoint, so that writing it needs no further copy.
#pragma once

#include <cstddef>
#include <memory>

#include "checkpoint/rank_file.h"
#include "tensor/device.h"

namespace weft {

// The rank's file of this moment, beside passes, which only read the state; nothing may update it
// meanwhile.
void copy_state(const RankFile& file, Device* device, std::byte* to);

class Snapshot {
 public:
  Snapshot(const RankFile& file, Device* device) : file_(file), device_(device) {}
  ~Snapshot();
  Snapshot(const Snapshot&) = delete;
  Snapshot& operator=(const Snapshot&) = delete;

  // Allocates the memory, once: page-aligned, on a GPU pinned (seconds for some gigabytes).
  void reserve();
  void copy();  // reserves first
  const std::byte* image() const { return memory_; }

 private:
  const RankFile& file_;
  Device* device_;
  std::byte* memory_ = nullptr;
};

}  // namespace weft
