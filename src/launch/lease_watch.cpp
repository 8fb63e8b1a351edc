// launch/lease_watch.cpp: one look at a word in memory and a clock, ten times per second.
#include "launch/lease_watch.h"

#include <unistd.h>

#include <chrono>
#include <csignal>

#include "net/heartbeat.h"

namespace weft {
namespace {

constexpr std::chrono::milliseconds kLeaseLookEvery{100};
constexpr int64_t kPausedMs = 1000;  // between two looks: this process did not run

}  // namespace

LeaseWatch::LeaseWatch(const std::optional<RankContext>& rank) {
  if (!rank || !rank->node) return;
  world_ = rank->world;
  local_rank_ = rank->local_rank();
  thread_ = std::thread([this] { watch(); });
}

LeaseWatch::~LeaseWatch() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  ends_.notify_all();
  thread_.join();
}

bool LeaseWatch::is_over() const {
  const int64_t lease = world_->lease_ms();
  return lease != 0 && boot_ms() > lease;
}

// Nothing is written but memory: storage may hang for the same reason for which the lease ends.
void LeaseWatch::watch() {
  std::unique_lock lock(mutex_);
  int64_t looked_ms = boot_ms();
  while (!ends_.wait_for(lock, kLeaseLookEvery, [this] { return is_ending_; })) {
    const int64_t passed_ms = boot_ms() - looked_ms;
    looked_ms += passed_ms;
    if (!is_over()) continue;
    if (passed_ms >= kPausedMs) {
      stop();
      looked_ms = boot_ms();
      continue;
    }
    world_->note_failure(local_rank_,
                         "its node's agent has not renewed the lease: it stands still, or the "
                         "supervisor does not answer it");
    ::kill(::getpid(), SIGKILL);
  }
}

// The agent sends SIGCONT until it sees that the rank is not held any more: one that comes before
// SIGSTOP has no effect.
void LeaseWatch::stop() {
  world_->note_held(local_rank_, true);
  if (is_over()) ::kill(::getpid(), SIGSTOP);
  world_->note_held(local_rank_, false);
}

}  // namespace weft
