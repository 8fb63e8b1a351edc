// launch/agent_lease.cpp: how long this node's ranks may run without an answer of the supervisor.
//
// The supervisor gives a node up lost_ms after the last beat that it has read. An answer says that
// it has read one beat, so time counts from when that one was sent, whenever the answer came: no
// clock of another machine is needed, and an answer that was held up on its way renews nothing.
//
// Ranks are stopped first (SIGSTOP): so they write nothing, and a supervisor that only stood still,
// on a busy machine or by a signal, finds them where they were. They go on when it answers, and are
// killed where its machine does not acknowledge either, or when it takes too long. Each rank also
// ends by itself (launch/lease_watch.h), where this process stands still.
#include <fmt/core.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "launch/node_agent.h"

namespace weft {

void Agent::begin_lease() {
  asked_ms_.clear();
  answered_ms_ = boot_ms();
  turned_ms_ = monotonic_ms();
  silent_ms_ = 0;
}

void Agent::note_answer() {
  if (asked_ms_.empty()) throw PeerError("the supervisor answers a beat that was not sent");
  answered_ms_ = asked_ms_.front();
  asked_ms_.pop_front();
  share_lease();
}

void Agent::share_lease() {
  if (ranks_) ranks_->world().set_lease(answered_ms_ + options_.lease_ms);
}

// Whether to give up is no matter of safety, so only time during which this process ran counts.
void Agent::keep_lease() {
  constexpr int64_t kMostPerTurnMs = 200, kCutMs = 1000;
  const int64_t now = monotonic_ms(), passed_ms = now - std::exchange(turned_ms_, now);
  const bool is_silent = boot_ms() - answered_ms_ >= options_.silence_ms;
  silent_ms_ = is_silent ? silent_ms_ + std::min(passed_ms, kMostPerTurnMs) : 0;
  const bool is_cut = silent_ms_ >= kCutMs && !channel_->is_acknowledged();
  // The first node's agent dies with the supervisor, so that one can only stand still.
  if ((is_cut || silent_ms_ >= options_.give_up_ms) && !options_.is_first)
    throw PeerError(fmt::format("{}: nothing was heard of it for {} s", channel_->peer(),
                                (options_.silence_ms + silent_ms_) / 1000));
  if (!ranks_) return;
  if (is_silent != are_held_) hold_ranks(is_silent);
  for (int r = 0; r < ranks_->size() && !is_silent; ++r) {
    if (ranks_->world().is_held(r)) ranks_->send_all(SIGCONT);
  }
}

void Agent::hold_ranks(bool is_silent) {
  are_held_ = is_silent;
  if (is_silent) {
    log_warning("{}: nothing was heard of it for {} s; this node's ranks wait until it answers",
                channel_->peer(), options_.silence_ms / 1000);
  } else {
    log_info("{} answers again; this node's ranks continue", channel_->peer());
  }
  ranks_->send_all(is_silent ? SIGSTOP : SIGCONT);
}

}  // namespace weft
