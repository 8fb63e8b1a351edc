// comm/shm/group.cpp: ticks, and the errors of failed ones.
#include "comm/shm/group.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/round_up.h"
#include "comm/shm/message.h"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kPage = 64 << 10;

}  // namespace

ShmGroup::Layout::Layout(int num_members, int64_t chunk_bytes) {
  const int64_t n = num_members;
  slots = 2 * static_cast<int64_t>(sizeof(SharedWord));
  mailboxes = slots + n * static_cast<int64_t>(sizeof(Slot));
  staging = round_up(mailboxes + n * n * static_cast<int64_t>(sizeof(Mailbox)), kPage);
  messages = staging + n * 2 * chunk_bytes;
  end = messages + n * n * 2 * message_bytes(chunk_bytes);
}

int64_t ShmGroup::block_bytes(int num_members, int64_t chunk_bytes) {
  return Layout(num_members, chunk_bytes).end;
}

ShmGroup::ShmGroup(std::shared_ptr<ShmWorld> world, int64_t block, std::vector<int> ranks, int me)
    : world_(std::move(world)),
      ranks_(std::move(ranks)),
      me_(me),
      chunk_bytes_(world_->chunk_bytes()),
      layout_(size(), chunk_bytes_),
      block_(world_->map_block(block, layout_.end)),
      arrived_(reinterpret_cast<SharedWord*>(block_)),
      epoch_(arrived_ + 1),
      sent_(ranks_.size()),
      received_(ranks_.size()) {}

ShmGroup::Slot& ShmGroup::slot(int member) const {
  return reinterpret_cast<Slot*>(block_ + layout_.slots)[member];
}

ShmGroup::Mailbox& ShmGroup::mailbox(int from, int to) const {
  return reinterpret_cast<Mailbox*>(block_ + layout_.mailboxes)[from * size() + to];
}

const CommCall& ShmGroup::posted(int member) const { return slot(member).calls[number_ % 2]; }

char* ShmGroup::stage() const {
  return block_ + layout_.staging + (int64_t{me_} * 2 + (tick_ + 1) % 2) * chunk_bytes_;
}

const char* ShmGroup::staged(int member) const {
  return block_ + layout_.staging + (int64_t{member} * 2 + tick_ % 2) * chunk_bytes_;
}

char* ShmGroup::message(int from, int to, uint32_t chunk) const {
  const int64_t index = (static_cast<int64_t>(from) * size() + to) * 2 + chunk % 2;
  return block_ + layout_.messages + index * message_bytes(chunk_bytes_);
}

char* ShmGroup::data(int member) const {
  return world_->pointer(world_rank(member), posted(member).location);
}

bool ShmGroup::is_everyone_in_arena() const {
  for (int m = 0; m < size(); ++m) {
    if (posted(m).location == ShmWorld::kPrivate) return false;
  }
  return true;
}

void ShmGroup::check_abort(CommOp op) const {
  if (!world_->is_aborted()) return;
  throw PeerError(fmt::format("{} aborted: {}", comm_op_name(op), world_->abort_reason()));
}

void ShmGroup::note_call(CommOp op, uint32_t number) {
  const uint64_t latest = uint64_t{number} << 8 | static_cast<uint64_t>(op);
  slot(me_).latest.store(latest, std::memory_order_relaxed);
  world_->heartbeat(world_rank(me_)).note_call(latest);
}

void ShmGroup::enter(CommCall call) {
  call.number = ++number_;
  call_ = call;
  slot(me_).calls[number_ % 2] = call;
  note_call(call.op, number_);
  tick();
  compare_calls();
}

void ShmGroup::tick() {
  ++tick_;
  slot(me_).tick.store(tick_, std::memory_order_release);
  const uint32_t all = tick_ * static_cast<uint32_t>(size());
  if (arrived_->value.fetch_add(1, std::memory_order_acq_rel) + 1 == all) {
    set_and_wake(*epoch_, tick_);
  } else {
    wait({*epoch_, tick_, -1}, call_);
  }
}

void ShmGroup::compare_calls() const {
  for (int m = 1; m < size(); ++m) {
    if (is_same(posted(0), posted(m))) continue;
    fail_bug(
        fmt::format("ranks {} and {} made different calls at number {} of their group: rank {} "
                    "{}, rank {} {}",
                    world_rank(0), world_rank(m), number_, world_rank(0), describe(posted(0)),
                    world_rank(m), describe(posted(m))));
  }
}

// The deadline counts from the end of the first wait: the fast path reads no clock.
void ShmGroup::wait(const Wait& wait, const CommCall& call) {
  if (world_->wait_a_while(wait.word, wait.target)) return;
  const ScopedWaiting waiting(&world_->heartbeat(world_rank(me_)));
  const auto start = Clock::now();
  for (;;) {
    // A rank that aborts after this tick has seen it, so all that arrived find the reason
    // themselves.
    const bool is_aborted = world_->is_aborted();
    if (wait.word.has_reached(wait.target)) return;
    if (is_aborted) check_abort(call.op);
    check_late_have_not_ended(wait, call);
    const auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start);
    if (waited.count() >= deadline_ms()) fail_deadline(wait, call, waited.count());
    if (wait.peer >= 0) check_peer_is_elsewhere(wait, call);
    if (world_->wait_a_while(wait.word, wait.target)) return;
  }
}

// A peer that waits for this rank in a collective will not answer its send or recv.
void ShmGroup::check_peer_is_elsewhere(const Wait& wait, const CommCall& call) const {
  const uint32_t peer_tick = slot(wait.peer).tick.load(std::memory_order_acquire);
  if (static_cast<int32_t>(peer_tick - tick_) <= 0 || wait.word.has_reached(wait.target)) return;
  fail_bug(fmt::format("ranks {} and {} made different calls: rank {} {}, rank {} {}",
                       world_rank(me_), world_rank(wait.peer), world_rank(me_), describe(call),
                       world_rank(wait.peer), latest_call(wait.peer)));
}

bool ShmGroup::is_late(const Wait& wait, int member) const {
  if (wait.peer >= 0) return member == wait.peer;
  return static_cast<int32_t>(slot(member).tick.load(std::memory_order_acquire) - tick_) < 0;
}

// It did not fail, so nobody has aborted: the program let that rank exit too early.
void ShmGroup::check_late_have_not_ended(const Wait& wait, const CommCall& call) const {
  for (int m = 0; m < size(); ++m) {
    // In this order: a rank that arrived and then exited is not late.
    if (!world_->has_ended(world_rank(m))) continue;
    if (wait.word.has_reached(wait.target) || !is_late(wait, m)) continue;
    fail_bug(fmt::format("rank {} waits in {} for rank {}, which has ended", world_rank(me_),
                         describe(call), world_rank(m)));
  }
}

std::string ShmGroup::latest_call(int member) const {
  const uint64_t latest = slot(member).latest.load(std::memory_order_relaxed);
  return describe_latest(latest);
}

void ShmGroup::fail_deadline(const Wait& wait, const CommCall& call, int64_t waited_ms) const {
  std::string who;
  for (int m = 0; m < size(); ++m) {
    if (!is_late(wait, m)) continue;
    who += fmt::format("{}{} (last seen in {})", who.empty() ? "" : ", ", world_rank(m),
                       latest_call(m));
  }
  const std::string message =
      fmt::format("rank {} waited {:.1f} s in {} for rank {}", world_rank(me_),
                  static_cast<double>(waited_ms) / 1000, describe(call), who);
  world_->abort(message, true);
  throw PeerError(message, "that rank hangs or is very slow");
}

void ShmGroup::fail_bug(const std::string& message) const {
  world_->abort(message);
  throw BugError(message);
}

}  // namespace weft
