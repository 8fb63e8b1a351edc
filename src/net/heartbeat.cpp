// net/heartbeat.cpp: names and bounds of phases, and how a sign is written.
#include "net/heartbeat.h"

#include <chrono>
#include <ctime>

namespace weft {

const char* phase_name(Phase phase) {
  switch (phase) {
    case Phase::kStarting:
      return "starting";
    case Phase::kData:
      return "waiting for rows";
    case Phase::kPasses:
      return "forward and backward";
    case Phase::kUpdate:
      return "update";
    case Phase::kEvaluating:
      return "evaluating";
    case Phase::kAnswering:
      return "answering";
    case Phase::kSaving:
      return "saving";
    case Phase::kFinishing:
      return "finishing";
    case Phase::kParking:
      return "parking";
    case Phase::kRecovering:
      return "recovering";
  }
  return "unknown";
}

bool has_bound(Phase phase) {
  return phase == Phase::kPasses || phase == Phase::kUpdate || phase == Phase::kEvaluating ||
         phase == Phase::kAnswering;
}

int64_t monotonic_ms() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
}

int64_t boot_ms() {
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  return int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

void Heartbeat::note(Phase phase, int64_t step) {
  at_ms_.store(monotonic_ms(), std::memory_order_relaxed);
  step_.store(step, std::memory_order_relaxed);
  const uint32_t updates = num_updates_.load(std::memory_order_relaxed);
  if (phase == Phase::kUpdate) num_updates_.store(updates + 1, std::memory_order_relaxed);
  if (phase == Phase::kRecovering) num_updates_.store(0, std::memory_order_relaxed);
  phase_.store(static_cast<uint32_t>(phase), std::memory_order_relaxed);
  // Last: who sees the new count sees the rest. One thread writes, so it needs no atomic addition.
  count_.store(count_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
}

RankSign Heartbeat::read() const {
  RankSign sign;
  sign.count = count_.load(std::memory_order_acquire);
  sign.phase = phase();
  sign.step = step();
  sign.at_ms = at_ms_.load(std::memory_order_relaxed);
  sign.is_waiting = num_waiting_.load(std::memory_order_relaxed) > 0;
  sign.last_call = last_call_.load(std::memory_order_relaxed);
  const uint32_t updates = num_updates_.load(std::memory_order_relaxed);
  sign.has_stepped = updates > 1 || (updates == 1 && sign.phase != Phase::kUpdate);
  return sign;
}

void Heartbeat::clear() {
  num_waiting_.store(0, std::memory_order_relaxed);
  last_call_.store(0, std::memory_order_relaxed);
  num_updates_.store(0, std::memory_order_relaxed);
  note(Phase::kStarting, 0);
}

}  // namespace weft
