// train/generation_guard.cpp: two words in shared memory and a clock.
#include "train/generation_guard.h"

#include <chrono>
#include <thread>
#include <utility>

#include "base/error.h"
#include "net/heartbeat.h"

namespace weft {

GenerationGuard::GenerationGuard(std::shared_ptr<const ShmWorld> world)
    : world_(std::move(world)), generation_(world_ ? world_->generation() : 0) {}

void GenerationGuard::check(int64_t wait_ms) const {
  if (!world_) return;
  constexpr int64_t kLookMs = 10;
  const auto is_over = [this] {
    const int64_t until_ms = world_->lease_ms();
    return until_ms != 0 && boot_ms() > until_ms;
  };
  for (int64_t waited_ms = 0; is_over(); waited_ms += kLookMs) {
    if (waited_ms >= wait_ms)
      throw PeerError(
          "the lease of this rank's node is over, and its agent has not renewed it: another rank "
          "may have taken its place, and nothing more is written");
    std::this_thread::sleep_for(std::chrono::milliseconds(kLookMs));
  }
  if (world_->current_generation() != generation_)
    throw PeerError(
        fmt::format("generation {} of the ranks has begun; this rank is of {}, and "
                    "writes nothing more",
                    world_->current_generation(), generation_));
}

}  // namespace weft
