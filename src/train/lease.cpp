// train/lease.cpp: write, wait, read again: only the token that survived holds the lease.
#include "train/lease.h"

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <exception>
#include <fstream>
#include <random>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "net/kept_lock.h"

namespace weft {
namespace {

using Milliseconds = std::chrono::milliseconds;

std::string make_token() {
  std::random_device device;
  return fmt::format("{:08x}{:08x}", device(), device());
}

bool is_no_process(int64_t pid) {
  return ::kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH;
}

// A lock that promises anything else is not believed.
constexpr double kShortestLeaseSeconds = 0.1, kLongestLeaseSeconds = 3600;

}  // namespace

Lease::Clock::time_point Lease::Clock::now() {
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  return time_point(std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec));
}

struct Lease::Holder {
  std::string host, machine, token, current;
  int64_t pid = 0, run_pid = 0;  // of the process that holds it; of its supervisor
  Milliseconds lease{0};
  bool is_held = false, is_readable = true;

  explicit Holder(const std::string& text) {
    try {
      const Json json = parse_json(text, "the lock");
      host = json.at("host").as_string();
      machine = json.at("machine").as_string();
      token = json.at("token").as_string();
      const Json* found = json.find("current");
      current = found ? found->as_string() : token;
      pid = json.at("pid").as_int();
      const Json* of_run = json.find("run_pid");
      run_pid = of_run && of_run->is_int() ? of_run->as_int() : pid;
      const double lease_s = json.at("lease_s").as_number();
      require(lease_s >= kShortestLeaseSeconds && lease_s <= kLongestLeaseSeconds, "lease_s is {}",
              lease_s);
      lease = Milliseconds(static_cast<int64_t>(lease_s * 1e3));
      is_held = json.at("held").as_bool();
    } catch (const UserError&) {  // not ours, or cut: watched like one that is held
      host = "unknown";
      is_held = true;
      is_readable = false;
      lease = LeaseTimes().lease;
    }
  }
  std::string name() const { return fmt::format("process {} on {}", run_pid, host); }
  // A supervisor that lives has its rank replaced, by this process or another one.
  bool is_gone() const {
    return machine == machine_identity() && is_no_process(pid) &&
           (run_pid == weft::run_pid() || is_no_process(run_pid));
  }
};

std::string machine_identity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  char names[64] = {};
  if (::readlink("/proc/self/ns/pid", names, sizeof names - 1) < 0) names[0] = 0;
  return boot + " " + names;
}

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "unknown";
}

Lease::Lease(LeasePlace place, LeaseTimes times)
    : place_(std::move(place)), times_(times), token_(make_token()) {
  take();
  thread_ = std::thread([this] { beat(times_.beat); });
}

Lease::Lease(LeasePlace place, std::string token, LeaseTimes times)
    : place_(std::move(place)),
      times_(times),
      token_(std::move(token)),
      token_before_(token_),
      is_used_(true),
      renewed_(Clock::now() - times.lease) {
  thread_ = std::thread([this] { beat(Milliseconds(0)); });
}

Lease::~Lease() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
  try {
    release();
  } catch (const std::exception& e) {
    log_warning("{} could not be released, and expires: {}", place_.name, e.what());
  }
}

std::string Lease::text(bool is_held, const std::string& token) const {
  Json json;
  json.set("host", Json(host_name()));
  json.set("pid", Json(int64_t{::getpid()}));
  json.set("run_pid", Json(int64_t{run_pid()}));
  json.set("machine", Json(machine_identity()));
  json.set("token", Json(token));
  json.set("current", Json(current()));
  json.set("beat", Json(num_beats_));
  json.set("lease_s", Json(std::chrono::duration<double>(times_.lease).count()));
  json.set("held", Json(is_held));
  return json.dump() + "\n";
}

void Lease::take() {
  for (;;) {
    const auto before = place_.read();
    if (before && !is_free(*before)) continue;
    token_before_ = before ? Holder(*before).current : "";
    renewed_ = Clock::now();
    place_.write(text(true, token_));
    std::this_thread::sleep_for(times_.confirm);
    const auto now = place_.read();
    if (now && Holder(*now).token == token_) return;
    if (now && !Holder(*now).is_readable)
      throw RunError(fmt::format("{} was written, but {} other bytes are read there: this storage "
                                 "does not keep what is written",
                                 place_.name, now->size()),
                     "for an object store, check that its keys are set (AWS_ACCESS_KEY_ID)");
    if (now) static_cast<void>(is_free(*now));  // the other one, if it goes on
  }
}

// False: it has changed in a way that must be looked at again.
bool Lease::is_free(const std::string& text) {
  const Holder holder(text);
  if (!holder.is_held) return true;
  if (holder.is_gone()) {
    log_warning("{} was held by {}, which is gone: taken over", place_.name, holder.name());
    return true;
  }
  log_info("{} is held by {}: waiting for up to {:.0f} s to see whether it still runs", place_.name,
           holder.name(), std::chrono::duration<double>(holder.lease).count());
  const auto begun = Clock::now();
  while (Clock::now() - begun < holder.lease) {
    std::this_thread::sleep_for(std::min(times_.beat / 5, holder.lease));
    const auto now = place_.read();
    if (now && *now == text) continue;
    if (!now || !Holder(*now).is_held) return false;
    throw UserError(
        fmt::format("{} is held: {} is training there", place_.name, Holder(*now).name()),
        "wait for it, stop it, or give this run another name or --run-dir");
  }
  log_warning("{} was held by {}, which has not renewed it for {:.0f} s: taken over", place_.name,
              holder.name(), std::chrono::duration<double>(holder.lease).count());
  return true;
}

void Lease::renew() {  // under the mutex
  const auto now = place_.read();
  const auto begun = Clock::now();
  if (now && Holder(*now).token != token_) {
    lost_to_ = Holder(*now).name();
    is_lost_ = true;
    log_error("{} was taken over by {}: this run stores nothing more", place_.name, lost_to_);
    return;
  }
  ++num_beats_;
  place_.write(text(true, token_));
  renewed_ = begun;
}

void Lease::check() {
  const std::lock_guard lock(mutex_);
  if (lost_to_.empty() && Clock::now() - renewed_ > times_.lease / 2) renew();
  if (!lost_to_.empty())
    throw RunError(fmt::format("{} was taken over by {}", place_.name, lost_to_),
                   "this run has ended here; the other one goes on");
}

void Lease::mark_used() {
  const std::lock_guard lock(mutex_);
  is_used_ = true;
  renew();
}

void Lease::beat(Milliseconds first) {
  std::unique_lock lock(mutex_);
  bool is_failing = false;
  for (Milliseconds pause = first; !changed_.wait_for(lock, pause, [this] { return is_ending_; });
       pause = times_.beat) {
    if (!lost_to_.empty()) return;
    try {
      renew();
      is_failing = false;
    } catch (const std::exception& e) {
      if (!is_failing) log_warning("{} could not be renewed: {}", place_.name, e.what());
      is_failing = true;
    }
  }
}

void Lease::release() {
  if (!lost_to_.empty()) return;
  const auto now = place_.read();
  if (now && Holder(*now).token != token_) return;
  if (!is_used_ && token_before_.empty()) return place_.remove();
  place_.write(text(false, current()));
}

}  // namespace weft
