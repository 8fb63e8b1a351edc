// tests/launch/surviving_rank.h: a rank that parks and continues from memory, as those of weft do.
#pragma once

#include <fmt/core.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>

#include "base/error.h"
#include "comm/nodes/nodes.h"
#include "launch/rank_context.h"
#include "net/slot_client.h"
#include "net/store.h"

namespace weft::testing {

constexpr int64_t kKeptStep = 7, kKeptBytes = 64, kKeepMs = 10'000;

// A slot of this rank, and its copy on the next node.
inline void keep_step(const RankContext& me, const NodePlace& place) {
  SnapshotSlots& slots = *me.slots;
  const int rank = me.local_rank(), per_node = slots.num_ranks(), node = me.rank / per_node;
  slots.reserve(rank, kKeptBytes, "layout");
  if (!slots.has(rank, kKeptStep)) {
    std::memset(slots.begin(rank, 0, kKeptStep, 0), me.rank, kKeptBytes);
    slots.finish(rank, 0, "text");
  }
  const Secret secret = Secret::from_file(place.secret_file);
  const auto partner = StoreClient(place.store, kKeepMs, &secret)
                           .wait_for(slots_key((node + 1) % (me.size / per_node)), kKeepMs);
  SlotClient(partner.value(), secret, kKeepMs)
      .put({node, rank, 0, kKeptStep, 0, 6, 4, kKeptBytes}, "layout", "text",
           slots.memory(rank, 0));
}

// train: with a group of all ranks, until the end. late_ms: for which ranks of the second node do
// not park; slow_ms: that a process takes to start in place of another.
template <typename Train>
int survive(const RankContext& me, int late_ms, int slow_ms, const Train& train) {
  const auto sleep_ms = [](int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); };
  ShmWorld& world = *me.world;
  if (world.generation() > 0) {
    std::fputs(fmt::format("rank {} replaces another\n", me.rank).c_str(), stdout);
    std::fflush(stdout);
    sleep_ms(slow_ms);
  }
  for (;;) {
    try {
      NodePlace place = *me.node;
      place.store = world.store();
      const auto comm = make_nodes_comm(me.world, me.local_rank(), place);
      keep_step(me, place);
      comm->barrier();
      world.heartbeat(me.local_rank()).note(Phase::kData, 1);  // else it starts, and is not awaited
      return train(*comm);
    } catch (const PeerError&) {
    }
    if (me.node->first_rank > 0) sleep_ms(late_ms);
    if (!world.park(me.local_rank())) return 75;
  }
}

// Rank 0 needs nobody any more, and writes; meanwhile the rank `dying` dies. dies: rank 0 too,
// later. parks: the other rank of its node waits for it.
inline int finish_alone(const RankContext& me, Comm& comm, int dying, bool dies, bool parks) {
  const auto sleep_ms = [](int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); };
  ShmWorld& world = *me.world;
  comm.barrier();
  if (world.run_generation() > 0) return 0;
  if (me.rank == 0) {
    world.heartbeat(0).note(Phase::kFinishing, 1);
    world.note_finishing();
    sleep_ms(900);
    if (dies) ::raise(SIGKILL);
    std::puts("rank 0 has finished");
    return 0;
  }
  if (me.rank == dying) {
    sleep_ms(150);
    ::raise(SIGKILL);
  }
  const bool is_next_to_it = me.rank / world.num_ranks() == dying / world.num_ranks();
  if (!parks || !is_next_to_it) return 0;
  while (!world.is_aborted()) sleep_ms(1);
  return world.park(me.local_rank()) ? 1 : 75;
}

}  // namespace weft::testing
