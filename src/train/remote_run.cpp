// train/remote_run.cpp: the lock of a run in an object store, its start and its end.
#include "train/remote_run.h"

#include <algorithm>
#include <cstdlib>

#include "base/error.h"
#include "base/log.h"
#include "base/path.h"
#include "train/guarded_store.h"

namespace weft {
namespace {

// Its calls are made without retries: an answer that is minutes late is none.
LeasePlace lock_of(const std::shared_ptr<ObjectStore>& store) {
  return {store->address() + "/lock", [store] { return store->find("lock"); },
          [store](const std::string& text) { store->put("lock", text); },
          [store] { store->remove("lock"); }};
}

// The first request shows whether the store can be reached and the bucket is there: with retries.
LeasePlace reach_lock(ObjectStore& retrying, const std::shared_ptr<ObjectStore>& store) {
  static_cast<void>(retrying.list(""));
  return lock_of(store);
}

std::string known_token(const MirrorState& state, const std::filesystem::path& mirror) {
  if (!state.token.empty()) return state.token;
  throw RunError(fmt::format("{} is not readable, and with it the token of the store's lock",
                             (mirror / kMirrorState).string()),
                 "the same command continues from what the store has");
}

}  // namespace

RemoteTimes remote_times() {
  RemoteTimes times;
  const char* seconds = std::getenv("WEFT_STORAGE_RETRY_S");
  if (!seconds || !*seconds) return times;
  char* end = nullptr;
  const double value = std::strtod(seconds, &end);
  require(*end == 0 && value >= 0 && value < 1e6,
          "WEFT_STORAGE_RETRY_S is \"{}\", wanted a number of seconds", seconds);
  times.retry.total = std::chrono::milliseconds(static_cast<int64_t>(value * 1e3));
  times.retry.pause = std::min(times.retry.pause, times.retry.total / 8);
  return times;
}

RemoteRun::RemoteRun(std::shared_ptr<ObjectStore> store, std::filesystem::path mirror,
                     RemoteTimes times)
    : mirror_(std::move(mirror)),
      raw_(std::move(store)),
      once_(std::make_shared<GuardedStore>(raw_, [this] { lease_.check(); })),
      store_(std::make_shared<RetryingStore>(once_, times.retry)),
      times_(times),
      state_(read_mirror_state(mirror_)),
      lease_(reach_lock(*store_, raw_), times.lease) {}

RemoteRun::RemoteRun(Reopen, std::shared_ptr<ObjectStore> store, std::filesystem::path mirror,
                     RemoteTimes times)
    : mirror_(std::move(mirror)),
      raw_(std::move(store)),
      once_(std::make_shared<GuardedStore>(raw_, [this] { lease_.check(); })),
      store_(std::make_shared<RetryingStore>(once_, times.retry)),
      times_(times),
      state_(read_mirror_state(mirror_)),
      lease_(lock_of(raw_), known_token(state_, mirror_), times.lease),
      may_have_partial_(true),
      thread_([this] { put_records_periodically(); }) {}

RemoteRun::~RemoteRun() {
  pushing_.finish();
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  changed_.notify_all();
  if (!thread_.joinable()) return;
  thread_.join();
  try {
    lease_.check();
    push_records(*once_, Events::kWhereAllIsSent);
  } catch (const std::exception&) {  // reported by the last push, or expected by who reads this
  }
}

std::set<std::string> RemoteRun::checkpoint_names() const {
  std::set<std::string> names;
  for (const std::string& name : folder_names(mirror_ / "checkpoints"))
    names.insert("checkpoints/" + name);
  return names;
}

bool RemoteRun::is_own() const {
  const std::string& before = lease_.token_before();
  return !before.empty() && (before == state_.token || before == state_.next_token);
}

void RemoteRun::keep_state() { write_mirror_state(mirror_, state_); }

void RemoteRun::begin(int64_t step, bool overwrite) {
  store_->repeat([this] { lease_.mark_used(); });
  if (overwrite) delete_old_run();
  follow_names(step);
  push_records(*store_, Events::kWhereAllIsSent);
  state_.token = lease_.token();
  keep_state();
  thread_ = std::thread([this] { put_records_periodically(); });
}

void RemoteRun::push(int64_t keep) {
  push_until(keep, [] { return false; });
}

void RemoteRun::push_until(int64_t keep, const std::function<bool()>& is_left) {
  pushing_.run(
      [this, keep] {
        lease_.check();
        push_all(keep);
      },
      is_left);
}

void RemoteRun::check_lock() {
  try {
    lease_.check();
  } catch (const Error&) {  // that it cannot be renewed is reported by the pushes
    if (lease_.is_lost()) throw;
  }
}

void RemoteRun::finish(int64_t keep) {
  check_lock();
  try {
    push(keep);
    const std::vector<std::string> left = unsent();
    if (left.empty()) log_info("all files are in {}", address());
    for (const std::string& name : left)
      log_warning("{} has no copy of {}, which is damaged on this machine", address(), name);
  } catch (const Error& e) {
    throw RunError(
        fmt::format("{}\n  what {} lacks is in {}", e.what(), address(), mirror_.string()),
        "the same command on this machine uploads it, and continues from there");
  }
}

// No sooner than 50 times what the last one took: at most 2 % of the network's time.
void RemoteRun::put_records_periodically() {
  using Clock = std::chrono::steady_clock;
  Clock::duration pause = times_.records;
  bool is_failing = false;
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, pause, [this] { return is_ending_; })) {
    lock.unlock();
    const auto begun = Clock::now();
    try {
      lease_.check();
      push_records(*once_, Events::kNot);
      is_failing = false;
    } catch (const std::exception& e) {
      if (lease_.is_lost()) return;
      if (!is_failing) log_warning("{}; trying again", e.what());
      is_failing = true;
    }
    pause = std::max<Clock::duration>(times_.records, 50 * (Clock::now() - begun));
    pause = std::min<Clock::duration>(pause, std::chrono::minutes(5));
    lock.lock();
  }
}

}  // namespace weft
