// net/heartbeat.h: what a rank is doing, written by the rank and read by its supervisor.
//
// Lies in shared memory (ShmWorld), or in the memory of a run of one rank. Writing one costs a few
// relaxed stores and one read of the clock, without a system call.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace weft {

enum class Phase : uint32_t {
  kStarting,  // model, rows, checkpoint; also the first tokens of a cache: zeroed memory is this
  kData,      // waiting for the next batch, which may have to be tokenized first
  kPasses,    // forward and backward
  kUpdate,
  kEvaluating,
  kAnswering,  // generating answers in an evaluation
  kSaving,     // waiting for a disk
  kFinishing,  // writing the final model
  kParking,    // dropping what is in flight, after another rank was lost
  kRecovering,
};

const char* phase_name(Phase phase);  // "forward and backward"
// Whether a rank that makes no progress in this phase for long enough hangs. Reading, tokenizing
// and writing have no bound: a slow disk is no reason to kill a rank.
bool has_bound(Phase phase);

// A heartbeat as it was read.
struct RankSign {
  Phase phase = Phase::kStarting;
  int64_t step = 0;
  uint64_t count = 0;        // of signs: the rank makes progress while it changes
  int64_t at_ms = 0;         // CLOCK_MONOTONIC, of the last one
  bool is_waiting = false;   // for another rank, in a collective
  uint64_t last_call = 0;    // the last collective, in comm's own code; 0: none
  bool has_stepped = false;  // a step was completed since the start or the last recovery
};

class Heartbeat {
 public:
  // By the thread of the training loop. In the same phase: it has made progress.
  void note(Phase phase, int64_t step);
  Phase phase() const { return static_cast<Phase>(phase_.load(std::memory_order_relaxed)); }
  int64_t step() const { return step_.load(std::memory_order_relaxed); }
  // By any thread that takes part in collectives.
  void note_call(uint64_t call) { last_call_.store(call, std::memory_order_relaxed); }
  void add_waiting(int change) { num_waiting_.fetch_add(change, std::memory_order_relaxed); }

  RankSign read() const;
  void clear();  // before the process of a rank is started

 private:
  std::atomic<uint32_t> phase_, num_updates_;
  std::atomic<int32_t> num_waiting_;
  std::atomic<int64_t> step_, at_ms_;
  std::atomic<uint64_t> count_, last_call_;
};

// While it lives, a thread waits for another rank. Null: it is not noted anywhere.
class ScopedWaiting {
 public:
  explicit ScopedWaiting(Heartbeat* heartbeat) : heartbeat_(heartbeat) { add(1); }
  ~ScopedWaiting() { add(-1); }
  ScopedWaiting(const ScopedWaiting&) = delete;
  ScopedWaiting& operator=(const ScopedWaiting&) = delete;

 private:
  void add(int change) {
    if (heartbeat_ != nullptr) heartbeat_->add_waiting(change);
  }
  Heartbeat* heartbeat_;
};

// A part of another phase: that one goes on at the end of its life.
class ScopedPhase {
 public:
  ScopedPhase(Heartbeat* heartbeat, Phase phase) : heartbeat_(heartbeat) {
    if (heartbeat == nullptr) return;
    before_ = heartbeat->phase();
    heartbeat->note(phase, heartbeat->step());
  }
  ~ScopedPhase() {
    if (heartbeat_ != nullptr) heartbeat_->note(before_, heartbeat_->step());
  }
  ScopedPhase(const ScopedPhase&) = delete;
  ScopedPhase& operator=(const ScopedPhase&) = delete;

 private:
  Heartbeat* heartbeat_;
  Phase before_ = Phase::kStarting;
};

int64_t monotonic_ms();
// CLOCK_BOOTTIME: also counts while the machine is suspended.
int64_t boot_ms();

}  // namespace weft
