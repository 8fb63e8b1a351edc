// train/lease.h: a lock for places that several machines write: a small text that its holder
// renews.
//
// Clocks of two machines are never compared: a held lease is watched, and is free when it has not
// changed for as long as it promises to (docs/design/0013-object-stores.md).
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

namespace weft {

// Where the text is kept. Each may throw; read returns nothing where there is none.
struct LeasePlace {
  std::string name;  // in messages
  std::function<std::optional<std::string>()> read;
  std::function<void(const std::string&)> write;
  std::function<void()> remove;
};

struct LeaseTimes {
  std::chrono::milliseconds beat{5000}, lease{25000};
  std::chrono::milliseconds confirm{500};  // between a write and the read that shows who has won
};

class Lease {
 public:
  // UserError naming host and pid where another process holds it. One that is no longer renewed, or
  // whose process was of this machine and is gone with its supervisor, is taken over, with a
  // warning.
  explicit Lease(LeasePlace place, LeaseTimes times = {});
  // For a process that takes the place of one that died while it held this token: goes on with it,
  // without a request. The heartbeat renews it at once, or finds that somebody else has it.
  Lease(LeasePlace place, std::string token, LeaseTimes times);
  ~Lease();  // releases it; where that fails it expires
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  const std::string& token() const { return token_; }
  // Of the last holder that changed the place; empty: none.
  const std::string& token_before() const { return token_before_; }
  // The holder is about to change the place that the lease guards: from here on its token is the
  // one that others find as token_before(). One that was never marked leaves token_before() behind.
  // Throws what the place throws; it may be called again.
  void mark_used();
  // RunError where another process has taken it. Renews it first where that is overdue; throws what
  // the place throws.
  void check();
  bool is_lost() const { return is_lost_; }  // as far as the heartbeat knows; never waits

 private:
  // Goes on while the machine is suspended, unlike steady_clock: the others do not wait for that.
  struct Clock {
    using duration = std::chrono::nanoseconds;
    using rep = duration::rep;
    using period = duration::period;
    using time_point = std::chrono::time_point<Clock>;
    static constexpr bool is_steady = true;
    static time_point now();
  };
  struct Holder;
  void take();
  bool is_free(const std::string& text);  // watches it; UserError where it is renewed
  void renew();
  void release();
  void beat(std::chrono::milliseconds first);
  std::string text(bool is_held, const std::string& token) const;
  const std::string& current() const { return is_used_ ? token_ : token_before_; }

  const LeasePlace place_;
  const LeaseTimes times_;
  std::string token_, token_before_;
  std::atomic<bool> is_used_ = false, is_lost_ = false;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_ending_ = false;
  std::string lost_to_;  // host and pid
  int64_t num_beats_ = 0;
  Clock::time_point renewed_;
  std::thread thread_;
};

// This machine and the pids that it can see: boot and pid namespace.
std::string machine_identity();
std::string host_name();

}  // namespace weft
