// train/generation_guard.h: whether this process may still change the run's files
// (docs/design/0018-nodes.md).
//
// A later generation of ranks exists only after the world of this process was reset, or after its
// node was given up, which happens when its lease has been over for a while: both are words in
// shared memory. A process that stood still learns here, before it commits, what it has missed.
#pragma once

#include <cstdint>
#include <memory>

#include "net/shm_world.h"

namespace weft {

class GenerationGuard {
 public:
  // Of the generation that runs now. world: null where no supervisor started this process.
  explicit GenerationGuard(std::shared_ptr<const ShmWorld> world);
  // PeerError where another generation has begun, or where the lease is over. A lease is waited for
  // up to this time, during which this process ran: where all of a machine stood still, the
  // supervisor answers soon, and nothing is lost.
  void check(int64_t wait_ms = 1000) const;

 private:
  std::shared_ptr<const ShmWorld> world_;
  uint32_t generation_;
};

}  // namespace weft
