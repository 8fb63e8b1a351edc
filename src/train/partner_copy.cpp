// train/partner_copy.cpp: one connection to the partner's agent.
#include "train/partner_copy.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/elapsed.h"
#include "base/error.h"
#include "base/log.h"
#include "net/store.h"
#include "train/slot_deadline.h"

namespace weft {
namespace {

int64_t node_of(const RankPlace& place) {
  return place.node->first_rank / place.slots->num_ranks();
}

int64_t partner_of(const RankPlace& place) {
  return (node_of(place) + 1) % (place.node->num_ranks / place.slots->num_ranks());
}

}  // namespace

bool PartnerCopy::has_partner(const RankPlace& place) {
  return place.slots && place.node && place.node->num_ranks != place.slots->num_ranks();
}

std::shared_ptr<PartnerCopy> PartnerCopy::of(const RankPlace& place) {
  return has_partner(place) ? std::make_shared<PartnerCopy>(place) : nullptr;
}

void PartnerCopy::connect(int64_t step) {
  if (client_) return;
  const NodePlace now = place_.node_now();
  const Secret secret = Secret::from_file(now.secret_file);
  const auto endpoint =
      StoreClient(now.store, kSlotMs, &secret).wait_for(slots_key(partner_of(place_)), kSlotMs);
  if (!endpoint) throw PeerError("the run has ended");
  auto client = std::make_unique<SlotClient>(*endpoint, secret, kSlotMs);
  const std::lock_guard lock(mutex_);
  client_ = std::move(client);
  if (is_over_ || step <= given_up_) client_->shut_down();
}

void PartnerCopy::give_up(int64_t step, double waited_s) noexcept {
  const std::lock_guard lock(mutex_);
  given_up_ = step;
  waited_s_ = waited_s;
  sent_s_ = std::max<double>(sent_s_, waited_s);  // and longer
  if (client_) client_->shut_down();
}

void PartnerCopy::shut_down() noexcept {
  is_over_ = true;
  const std::lock_guard lock(mutex_);
  if (client_) client_->shut_down();
}

bool PartnerCopy::send_slot(const SnapshotSlots::View& view) {
  connect(view.step);
  const int rank = place_.local_rank();
  const auto there = client_->list(node_of(place_), rank);
  if (!there) throw PeerError("that node keeps no copies of this one");
  if (std::find(there->steps.begin(), there->steps.end(), view.step) != there->steps.end())
    return false;
  const std::string layout = place_.slots->layout(rank);
  const SlotPut put{node_of(place_),
                    rank,
                    view.slot,
                    view.step,
                    view.generation,
                    static_cast<int64_t>(layout.size()),
                    static_cast<int64_t>(view.text.size()),
                    view.bytes};
  client_->put(put, layout, view.text, view.data);
  return true;
}

void PartnerCopy::note_failure(int64_t step, Clock::time_point begun, const std::string& why) {
  const auto now = Clock::now();
  const std::lock_guard lock(mutex_);
  client_.reset();  // what is under way on it is not known
  retry_at_ = now + 50 * (now - begun);
  if (is_over_ || std::exchange(has_failed_, true)) return;
  log_warning("rank {}: no copies of its snapshots on another node: {}", place_.rank,
              step > given_up_ ? why
                               : fmt::format("one takes longer than {:.1f} s; a larger "
                                             "launch.snapshot_every gives it more time",
                                             waited_s_));
}

void PartnerCopy::send(int64_t step) {
  const auto view = place_.slots->find(place_.local_rank(), step);
  const auto begun = Clock::now();
  if (is_over_ || !view || begun < retry_at_) return;
  try {
    if (send_slot(*view)) sent_s_ = seconds_since(begun);
    if (std::exchange(has_failed_, false))
      log_info("rank {}: its snapshots have copies on another node again", place_.rank);
  } catch (const Error& e) {
    note_failure(step, begun, e.what());
  }
}

}  // namespace weft
