// launch/lease_watch.h: a rank of one of several nodes ends when its lease is over.
//
// The agent renews it in shared memory (ShmWorld::set_lease) whenever the supervisor has answered.
// An agent that is stopped or hangs cannot end its ranks, and the supervisor gives the node's place
// to another one: this thread ends the rank before that. Where the rank itself stood still, as all
// processes of a machine that is paused do, it stops (SIGSTOP): its agent, which runs again too,
// continues it when the supervisor answers, or kills it.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "launch/rank_context.h"

namespace weft {

class LeaseWatch {
 public:
  // Without a rank, or where all ranks are on one machine, it does nothing.
  explicit LeaseWatch(const std::optional<RankContext>& rank);
  ~LeaseWatch();
  LeaseWatch(const LeaseWatch&) = delete;
  LeaseWatch& operator=(const LeaseWatch&) = delete;

 private:
  void watch();
  bool is_over() const;
  void stop();

  std::shared_ptr<ShmWorld> world_;
  int local_rank_ = 0;
  std::mutex mutex_;
  std::condition_variable ends_;
  bool is_ending_ = false;
  std::thread thread_;
};

}  // namespace weft
