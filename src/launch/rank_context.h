// launch/rank_context.h: what a process learns from the supervisor that started it as a rank.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "net/shm_world.h"

namespace weft {

struct RankContext {
  int rank = 0;
  int size = 1;
  int threads = 1;                  // this rank's part of the machine
  std::shared_ptr<ShmWorld> world;  // shared with the ranks of this machine

  // Nothing where no supervisor started this process. UserError where the variables make no sense.
  static std::optional<RankContext> from_environment();
};

// The variables: WEFT_RANK, WEFT_NUM_RANKS, WEFT_RANK_THREADS, WEFT_WORLD_FD.
inline constexpr const char* kRankVariable = "WEFT_RANK";
inline constexpr const char* kNumRanksVariable = "WEFT_NUM_RANKS";
inline constexpr const char* kThreadsVariable = "WEFT_RANK_THREADS";
inline constexpr const char* kWorldFdVariable = "WEFT_WORLD_FD";

// Leaves a rank's message to its supervisor, which reports the first cause of a job's end. Called
// where main turns an error into an exit code; false in a process that is no rank, which tells its
// error itself.
bool note_rank_failure(const std::string& message) noexcept;

}  // namespace weft
