// comm/gloo/link_failure.cpp: error messages of failed calls and transfers.
#include <gloo/transport/unbound_buffer.h>

#include "base/error.h"
#include "comm/gloo/message.h"

namespace weft {
namespace {

// A broken connection has a cause, which the store reports within this time if any rank knows it.
constexpr int64_t kCauseMs = 300;

// Gloo's messages begin with their source location.
std::string without_place(const std::string& text) {
  const size_t end = text.find("] ");
  return text.starts_with('[') && end != std::string::npos ? text.substr(end + 2) : text;
}

}  // namespace

std::string GlooLink::latest_call(int member) const {
  const CommCall& latest = peer(member).latest;
  if (latest.number == 0) return "no call";
  return fmt::format("{} number {}", comm_op_name(latest.op), latest.number);
}

void GlooLink::fail_difference(int a, const CommCall& call_a, int b, const CommCall& call_b) {
  fail_bug(fmt::format("ranks {} and {} made different calls: rank {} {}, rank {} {}",
                       world_rank(a), world_rank(b), world_rank(a), describe(call_a), world_rank(b),
                       describe(call_b)));
}

void GlooLink::fail_lost(int member, const std::string& why) {
  const std::chrono::duration<double> waited = Clock::now() - begun_;
  if (waited.count() * 1000 >= static_cast<double>(deadline_ms())) {
    fail_deadline(member, waited.count());
  }
  if (world_->wait_for_abort(kCauseMs)) world_->check_abort(comm_op_name(call_.op));
  fail(fmt::format("rank {} lost rank {} in {}: {}", world_rank(me_), world_rank(member),
                   describe(call_), without_place(why)));
}

void GlooLink::fail_deadline(int member, double waited_s) {
  std::string who;
  for (int m = 0; m < size(); ++m) {
    bool is_late = m == member;
    if (is_meeting_ && m != me_ && !is_late && !peer(m).has_come) {
      try {
        // Headers that have arrived are usable; the timeout has broken the rest.
        is_late = !peer(m).in->waitRecv(std::chrono::milliseconds(1));
      } catch (const std::exception&) {
        is_late = true;
      }
    }
    if (!is_late) continue;
    who += fmt::format("{}{} (last seen in {})", who.empty() ? "" : ", ", world_rank(m),
                       latest_call(m));
  }
  const std::string message = fmt::format("rank {} waited {:.1f} s in {} for rank {}",
                                          world_rank(me_), waited_s, describe(call_), who);
  world_->abort(message, true);
  throw PeerError(message, "that rank hangs or is very slow");
}

void GlooLink::fail(const std::string& message, const std::string& hint) {
  world_->abort(message);
  throw PeerError(message, hint);
}

void GlooLink::fail_bug(const std::string& message) {
  world_->abort(message);
  throw BugError(message);
}

}  // namespace weft
