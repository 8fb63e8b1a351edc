// launch/rendezvous.cpp: the file is read again until the store behind it is the right one.
#include "launch/rendezvous.h"

#include <chrono>
#include <thread>

#include "base/error.h"
#include "launch/rendezvous_file.h"
#include "net/deadline.h"

namespace weft {
namespace {

constexpr int64_t kConnectMs = 1'000;  // of one attempt: the file may be of an earlier launch
constexpr int64_t kRoundingMs = 20;    // by which a wait may end before its time
constexpr int64_t kAbortMs = 1'000;
constexpr auto kPause = std::chrono::milliseconds(20);

int64_t now_ms() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
}

std::string hex(const Nonce& nonce) {
  std::string text;
  for (const uint8_t byte : nonce) text += fmt::format("{:02x}", byte);
  return text;
}

std::string claim_key(int rank) { return fmt::format("claim/{}", rank); }

}  // namespace

Rendezvous::Rendezvous(const LauncherPlace& place, const RendezvousOptions& options)
    : place_(place), options_(options), end_ms_(now_ms() + options.deadline_ms) {
  if (place.rank == 0) {
    serve();
  } else {
    find_store();
  }
}

Rendezvous::~Rendezvous() = default;

void Rendezvous::serve() {
  RendezvousFile file;
  file.launch = place_.id;
  file.secret = hex(random_nonce());
  secret_ = std::make_shared<const Secret>(Secret::from_text(file.secret, "the run's secret"));
  server_ = std::make_unique<StoreServer>(options_.host, "0", secret_.get());
  file.endpoint = endpoint_ = server_->endpoint();
  client_ = std::make_unique<StoreClient>(endpoint_, kConnectMs, secret_.get());
  ensure(claim(), "rank 0's number was claimed in a new store");
  write_rendezvous(options_.path, file);
  try {
    wait_for_all();
  } catch (...) {
    remove_rendezvous(options_.path, file);
    throw;
  }
  remove_rendezvous(options_.path, file);
}

void Rendezvous::find_store() {
  std::string why = fmt::format("{} did not appear", options_.path.string());
  for (;;) {
    if (now_ms() >= end_ms_) refuse_absence(why);
    const auto file = read_rendezvous(options_.path);
    if (file && file->launch != place_.id) {
      why = fmt::format("{} is of another launch", options_.path.string());
    } else if (file) {
      try {
        secret_ =
            std::make_shared<const Secret>(Secret::from_text(file->secret, options_.path.string()));
        endpoint_ = file->endpoint;
        client_ = std::make_unique<StoreClient>(endpoint_, kConnectMs, secret_.get());
        if (claim()) break;
        why = fmt::format("another process is rank {} there", place_.rank);
      } catch (const Error& e) {  // it is of an attempt that has ended
        why = e.what();
      }
    }
    std::this_thread::sleep_for(kPause);
  }
  wait_for_all();
}

void Rendezvous::refuse_absence(const std::string& why) const {
  throw PeerError(fmt::format("rank {} did not find rank 0 within {} s: {}", place_.rank,
                              options_.deadline_ms / 1000, why),
                  "does rank 0 run, and do all nodes share the run directory?");
}

bool Rendezvous::claim() {
  const std::string mine = hex(random_nonce());
  client_->set(claim_key(place_.rank), mine);
  return client_->wait_for(claim_key(place_.rank), kConnectMs) == mine;
}

void Rendezvous::wait_for_all() {
  std::string missing;
  for (int rank = 0; rank < place_.size; ++rank) {
    const int64_t left_ms = std::max<int64_t>(end_ms_ - now_ms(), 100);
    try {
      if (!client_->wait_for(claim_key(rank), left_ms))
        throw PeerError("rank 0 has ended before all ranks had come");
    } catch (const PeerError&) {
      if (now_ms() + kRoundingMs < end_ms_) throw;  // not because the time is over
      missing += fmt::format("{}{}", missing.empty() ? "" : ", ", rank);
    }
  }
  if (missing.empty()) return;
  throw PeerError(
      fmt::format("of {} ranks ({}), these did not come within {} s: {}", place_.size,
                  place_.size_variable, options_.deadline_ms / 1000, missing),
      fmt::format("does {} start all of them, with the same run file?", place_.launcher));
}

void Rendezvous::abort(const std::string& reason) noexcept {
  try {
    client_->set(kAbortKey, reason);
    static_cast<void>(client_->wait_for(kAbortKey, kAbortMs));
  } catch (const std::exception&) {
    return;  // the store is gone, and all know it
  }
}

}  // namespace weft
