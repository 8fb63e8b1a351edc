// launch/rank_context.h: what a rank gets from the supervisor that started it.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "net/node_place.h"
#include "net/shm_world.h"
#include "net/snapshot_slots.h"

namespace weft {

struct RankContext {
  int rank = 0;
  int size = 1;                          // of all nodes
  int threads = 1;                       // this rank's share of the machine
  std::shared_ptr<ShmWorld> world;       // shared with the ranks of this machine
  std::shared_ptr<SnapshotSlots> slots;  // likewise; null: the job has none

  std::optional<NodePlace> node;  // of a run on several; none: the world has all ranks

  int local_rank() const { return rank - (node ? node->first_rank : 0); }  // in the world

  // None where no supervisor started this process. UserError where the variables are invalid.
  static std::optional<RankContext> from_environment();
};

// The variables: WEFT_RANK, WEFT_NUM_RANKS, WEFT_RANK_THREADS, WEFT_WORLD_FD, and where the job has
// snapshots WEFT_SNAPSHOTS_FD.
inline constexpr const char* kRankVariable = "WEFT_RANK";
inline constexpr const char* kNumRanksVariable = "WEFT_NUM_RANKS";
inline constexpr const char* kThreadsVariable = "WEFT_RANK_THREADS";
inline constexpr const char* kWorldFdVariable = "WEFT_WORLD_FD";
inline constexpr const char* kSnapshotsFdVariable = "WEFT_SNAPSHOTS_FD";
// On one of several nodes.
inline constexpr const char* kFirstRankVariable = "WEFT_NODE_FIRST_RANK";
inline constexpr const char* kStoreVariable = "WEFT_NODE_STORE";
inline constexpr const char* kHostVariable = "WEFT_NODE_HOST";
inline constexpr const char* kSecretVariable = "WEFT_NODE_SECRET_FILE";
std::map<std::string, std::string> variables_of(const NodePlace& place);

// Passes a rank's error to its supervisor, which reports the root cause of a job's end. Called
// where main turns an error into an exit code; false in a process that is not a rank, which prints
// its error itself.
bool note_rank_failure(const std::string& message) noexcept;

}  // namespace weft
