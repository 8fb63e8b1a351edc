// comm/gloo/world.cpp: how the reason of an abort propagates.
#include "comm/gloo/world.h"

#include <gloo/transport/tcp/device.h>

#include <csignal>
#include <future>
#include <utility>

#include "base/error.h"

namespace weft {
namespace {

std::shared_ptr<gloo::transport::Device> make_device(const std::string& host) {
  // Gloo writes to connections that may be closed, without MSG_NOSIGNAL.
  std::signal(SIGPIPE, SIG_IGN);
  gloo::transport::tcp::attr attr;
  attr.hostname = host;
  try {
    return gloo::transport::tcp::CreateDevice(attr);
  } catch (const std::exception& e) {
    throw UserError(fmt::format("Gloo cannot use the address {}: {}", host, e.what()),
                    "give the address of an interface of this machine");
  }
}

// At the same time: each takes three round trips.
std::array<std::unique_ptr<StoreClient>, 2> connect_twice(const GlooOptions& o) {
  const auto connect = [&o] {
    return std::make_unique<StoreClient>(o.store, o.deadline_ms, o.secret.get());
  };
  std::future<std::unique_ptr<StoreClient>> other = std::async(std::launch::async, connect);
  std::unique_ptr<StoreClient> one = connect();
  return {std::move(one), other.get()};
}

}  // namespace

GlooWorld::GlooWorld(const GlooOptions& options)
    : options_(options),
      clients_(connect_twice(options)),
      device_(make_device(options.host)),
      deadline_ms_(options.deadline_ms) {
  watched().set_last_will(kAbortKey,
                          fmt::format("rank {} ended without reporting an error", options.rank));
  watcher_ = std::thread([this] { watch(); });
}

GlooWorld::~GlooWorld() {
  watched().close();
  watcher_.join();
}

void GlooWorld::watch() noexcept {
  try {
    if (const auto reason = watched().wait_for(kAbortKey, -1)) abort_here(*reason);
  } catch (const std::exception& e) {
    abort_here(e.what());
  }
}

bool GlooWorld::abort_here(const std::string& reason, bool has_waited) {
  const std::lock_guard lock(mutex_);
  if (is_aborted_) return false;
  reason_ = reason;
  is_aborted_ = true;
  for (GlooWaiter* waiter : waiters_) waiter->wake();
  store().close();  // ends the wait of a group that is being connected
  aborted_.notify_all();
  if (options_.on_abort) options_.on_abort(reason, has_waited);
  return true;
}

void GlooWorld::abort(const std::string& reason, bool has_waited) {
  if (!abort_here(reason, has_waited)) return;
  try {
    watched().set(kAbortKey, reason);
  } catch (const PeerError&) {
    return;  // the store is gone, so the others know already
  }
}

void GlooWorld::check_abort(const std::string& what) {
  if (!is_aborted_) return;
  const std::lock_guard lock(mutex_);
  throw PeerError(fmt::format("{} aborted: {}", what, reason_));
}

bool GlooWorld::wait_for_abort(int64_t timeout_ms) {
  std::unique_lock lock(mutex_);
  return aborted_.wait_for(lock, std::chrono::milliseconds(timeout_ms),
                           [this] { return is_aborted_.load(); });
}

void GlooWorld::add(GlooWaiter* waiter) {
  const std::lock_guard lock(mutex_);
  waiters_.insert(waiter);
}

void GlooWorld::remove(GlooWaiter* waiter) {
  const std::lock_guard lock(mutex_);
  waiters_.erase(waiter);
}

}  // namespace weft
