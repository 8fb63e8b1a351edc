// tests/comm/fake_nccl.h: what stands in for NCCL, for ranks that are threads with fake GPUs.
//
// Calls are queued on the stream's thread and meet there, as on GPUs: a rank that does not come
// leaves the others' queues waiting, and nothing but an abort ends that. Sums are taken from the
// last rank to the first, an order that is not ours.
#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>

#include "comm/nccl_library.h"

namespace weft::testing {

class FakeNccl : public NcclLibrary {
 public:
  std::string version() const override { return "0.0.0"; }
  void listen_on(const std::string&) override {}
  NcclId make_id() override;
  std::unique_ptr<NcclLink> connect(const NcclId& id, int rank, int num_ranks) override;

  std::atomic<int> failing_rank{-1};  // whose GPU fails

  struct Group;

 private:
  std::mutex mutex_;
  std::map<int64_t, std::shared_ptr<Group>> groups_;
  int64_t num_ids_ = 0;
};

}  // namespace weft::testing
