// train/partner_copy.h: copies of this rank's slots in the memory of another node
// (docs/design/0021-memory-of-nodes.md).
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "net/slot_client.h"
#include "train/rank_place.h"

namespace weft {

// One per generation. The partner is the next node; the last one's is the first.
class PartnerCopy {
 public:
  // The place must outlive it.
  explicit PartnerCopy(const RankPlace& place) : place_(place) {}
  // Null: this run has one node, or no slots.
  static std::shared_ptr<PartnerCopy> of(const RankPlace& place);
  static bool has_partner(const RankPlace& place);

  // Sends the slot of that step, where it is whole here and not there. Where that fails, a warning
  // says so, and it is tried again with a later one: after 50 times as long, so that failures cost
  // less than 2 % of the time.
  void send(int64_t step);
  // How long the last one took, or was waited for; 0: none was sent.
  double sent_s() const { return sent_s_; }
  // From any thread: the copy of that step fails, since it has taken waited_s. When this returns no
  // byte of its slot is sent any more: it may be overwritten.
  void give_up(int64_t step, double waited_s) noexcept;
  void shut_down() noexcept;  // from any thread: send returns

 private:
  using Clock = std::chrono::steady_clock;
  void connect(int64_t step);
  bool send_slot(const SnapshotSlots::View& view);  // false: it was there already
  void note_failure(int64_t step, Clock::time_point begun, const std::string& why);

  const RankPlace& place_;
  std::mutex mutex_;       // guards client_ while it is made or dropped, and the next two
  int64_t given_up_ = -1;  // no copy of this step, or of one before it, is made any more
  double waited_s_ = 0;    // for it
  std::unique_ptr<SlotClient> client_;
  bool has_failed_ = false;  // the last one
  Clock::time_point retry_at_;
  std::atomic<bool> is_over_ = false;
  std::atomic<double> sent_s_ = 0;
};

}  // namespace weft
