// comm/shm/group.h: how the members of a group synchronize in shared memory; moves no data.
//
// A tick is one barrier: every member arrives before any continues. A member that has passed tick t
// may read what the others wrote before t; it writes for tick t + 1 into the other half of its
// staging area. So a half is rewritten only at t + 2, when all have reached t + 1, which they do
// only after reading what was staged for t: no further synchronization is needed.
//
// A call begins with a tick at which every member posts what it is about to do. All compare all
// posts with that of member 0, so all find the same difference.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "comm/call.h"
#include "comm/comm.h"
#include "net/shm_world.h"

namespace weft {

class ShmGroup {
 public:
  // ranks: the members' numbers in the world, in the group's order; me: this rank's index in it.
  ShmGroup(std::shared_ptr<ShmWorld> world, int64_t block, std::vector<int> ranks, int me);
  static int64_t block_bytes(int num_members, int64_t chunk_bytes);

  ShmWorld& world() const { return *world_; }
  const std::shared_ptr<ShmWorld>& shared_world() const { return world_; }
  int size() const { return static_cast<int>(ranks_.size()); }
  int me() const { return me_; }
  int world_rank(int member) const { return ranks_[static_cast<size_t>(member)]; }
  int64_t chunk_bytes() const { return chunk_bytes_; }

  void drop_deadline() { has_deadline_ = false; }
  void check_abort(CommOp op) const;
  void enter(CommCall call);  // the first tick of a call
  void tick();                // each further tick
  // Of the current call.
  bool is_everyone_in_arena() const;
  char* data(int member) const;                        // in its arena
  char* stage() const;                                 // for the next tick, this rank's
  const char* staged(int member) const;                // at the last tick
  void send(const void* data, int64_t bytes, int to);  // mailbox.cpp
  void recv(void* data, int64_t bytes, int from);

 private:
  // A member's post; two, since a peer may still compare the last one.
  struct alignas(64) Slot {
    CommCall calls[2];
    std::atomic<uint32_t> tick;    // the last one it reached
    std::atomic<uint64_t> latest;  // its last call, for messages: number << 8 | op
  };
  // From one member to another; the first of the pair is the sender.
  struct alignas(64) Mailbox {
    SharedWord sent, received;  // chunks
    CommCall calls[2];
  };
  struct Layout {
    int64_t slots, mailboxes, staging, messages, end;
    Layout(int num_members, int64_t chunk_bytes);
  };
  struct Wait {
    SharedWord& word;
    uint32_t target;
    int peer;  // the awaited member, or -1: all
  };

  int64_t deadline_ms() const { return has_deadline_ ? world_->deadline_ms() : kPatientMs; }
  const CommCall& posted(int member) const;
  Slot& slot(int member) const;
  Mailbox& mailbox(int from, int to) const;
  char* message(int from, int to, uint32_t chunk) const;
  void note_call(CommOp op, uint32_t number);
  void compare_calls() const;
  void wait(const Wait& wait, const CommCall& call);
  void check_peer_is_elsewhere(const Wait& wait, const CommCall& call) const;
  void check_late_have_not_ended(const Wait& wait, const CommCall& call) const;
  [[noreturn]] void fail_deadline(const Wait& wait, const CommCall& call, int64_t waited_ms) const;
  // A bug of ours: ranks that run the same program do not make different calls.
  [[noreturn]] void fail_bug(const std::string& message) const;
  bool is_late(const Wait& wait, int member) const;
  std::string latest_call(int member) const;

  std::shared_ptr<ShmWorld> world_;
  std::vector<int> ranks_;
  int me_;
  int64_t chunk_bytes_;
  Layout layout_;
  char* block_;
  SharedWord *arrived_, *epoch_;
  uint32_t tick_ = 0, number_ = 0;
  bool has_deadline_ = true;
  CommCall call_{};
  std::vector<uint32_t> sent_, received_;  // chunks, by peer
};

}  // namespace weft
