// train/rank_place.h: this process's place among the ranks of a run, and its groups.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "comm/nccl/nccl_library.h"
#include "config/run_config.h"
#include "model/model.h"
#include "net/node_place.h"
#include "net/shm_world.h"
#include "net/snapshot_slots.h"
#include "planning/backend.h"
#include "train/ranks.h"

namespace weft {

// Of a rank that torchrun, mpirun or the like started: there is no world in shared memory.
struct LaunchedRank {
  std::shared_ptr<Comm> all;  // null: a supervisor started it, or it is alone
  int local_rank = 0;         // on its machine
};

struct RankPlace {
  int rank = 0;
  int threads = 1;
  std::shared_ptr<ShmWorld> world;  // null: alone
  // For tests: another device than the run file's, shared by the ranks, or with its own group.
  std::function<Backend()> open_device = nullptr;
  NcclLibrary* nccl = nullptr;
  std::optional<NodePlace> node = std::nullopt;    // of a run on several; none: the world has all
  std::shared_ptr<SnapshotSlots> slots = nullptr;  // null: no snapshots outlive this process

  LaunchedRank launched = {};

  // `node` with the store of the generation that runs now.
  NodePlace node_now() const;

  int device_number() const { return launched.all ? launched.local_rank : local_rank(); }
  int local_rank() const { return rank - (node ? node->first_rank : 0); }  // in the world
  Heartbeat* heartbeat = nullptr;  // of a rank without a supervisor; null: nobody wants to know

  // This process takes the place of one that died, or all ranks have lost one: they continue from
  // their slots.
  bool is_continued() const { return slots && world->generation() > 0 && world->start_step() >= 0; }
  // The slots that it continues from are those of the previous layout
  // (docs/design/0022-elastic.md).
  bool has_previous_slots() const { return node && world->has_previous_slots(); }
};

// Collective. UserError where the model cannot be cut this way.
std::unique_ptr<Ranks> make_ranks(const RunConfig& config, const Model& model,
                                  const RankPlace& place);

}  // namespace weft
