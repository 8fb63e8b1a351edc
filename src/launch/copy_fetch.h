// launch/copy_fetch.h: the slots of a lost node, from the copies that its partner keeps.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "net/secret.h"
#include "net/slot_client.h"
#include "net/snapshot_slots.h"

namespace weft {

// Reads on a thread of its own, since an agent must go on giving signs of life. Every slot that is
// whole there, up to that step, becomes whole here, under the same number.
class CopyFetch {
 public:
  CopyFetch(std::string endpoint, const Secret& secret, int64_t node, int64_t newest,
            std::shared_ptr<SnapshotSlots> to);
  ~CopyFetch();  // gives it up
  CopyFetch(const CopyFetch&) = delete;
  CopyFetch& operator=(const CopyFetch&) = delete;

  bool is_done();  // PeerError where the copies are not there, or the partner is gone

 private:
  void work();
  void read_rank(int rank);

  const std::string endpoint_;
  const Secret secret_;
  const int64_t node_, newest_;
  const std::shared_ptr<SnapshotSlots> to_;
  std::mutex mutex_;  // guards client_ while it is made
  std::unique_ptr<SlotClient> client_;
  bool is_over_ = false;
  std::atomic<bool> has_ended_ = false;
  std::exception_ptr error_;
  std::thread thread_;
};

}  // namespace weft
