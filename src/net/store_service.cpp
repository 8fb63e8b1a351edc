// net/store_service.cpp: epoll, and lists of who waits for which key.
#include "net/store_service.h"

#include <sys/epoll.h>

#include <array>
#include <cerrno>
#include <utility>

#include "base/error.h"

namespace weft {
namespace {

constexpr size_t kMaxStoreClients = 32 << 10;
constexpr size_t kMaxStoredBytes = 64 << 20;
constexpr size_t kMaxKey = 1024;
constexpr size_t kMaxUnreadBytes = 1 << 20;  // answers that a client has not read
constexpr uint64_t kWake = 0, kListener = 1, kFirstClient = 2;

}  // namespace

StoreService::StoreService(const Socket* listener, int wake, const Secret* secret)
    : listener_(listener),
      secret_(secret),
      poll_(::epoll_create1(EPOLL_CLOEXEC)),
      next_id_(kFirstClient) {
  ensure(poll_.fd() >= 0, "cannot create an epoll descriptor for the store");
  watch(EPOLL_CTL_ADD, wake, kWake, EPOLLIN);
  listen(true);
}

void StoreService::watch(int operation, int fd, Id id, uint32_t events) const {
  epoll_event event{};
  event.events = events;
  event.data.u64 = id;
  ensure(::epoll_ctl(poll_.fd(), operation, fd, &event) == 0, "the store cannot watch a socket");
}

void StoreService::listen(bool is_wanted) {
  if (is_wanted == is_listening_) return;
  watch(is_wanted ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, listener_->fd(), kListener, EPOLLIN);
  is_listening_ = is_wanted;
}

void StoreService::run() {
  std::array<epoll_event, 256> events;
  for (bool is_ended = false; !is_ended;) {
    const int timeout_ms = unknown_.empty() && is_listening_ ? -1 : 1000;
    const int count = ::epoll_wait(poll_.fd(), events.data(), events.size(), timeout_ms);
    for (size_t i = 0; count > 0 && i < static_cast<size_t>(count); ++i) {
      const Id id = events[i].data.u64;
      if (id == kWake) is_ended = true;
      if (id == kListener) accept_new();
      if (id >= kFirstClient) serve(id, events[i].events);
    }
    drop_late();
    if (count == 0) listen(true);
  }
  for (auto& [id, client] : clients_) {
    client.link.queue(kStoreBye, "", "");
    client.link.flush();
  }
}

void StoreService::accept_new() {
  while (clients_.size() < kMaxStoreClients) {
    Socket socket = listener_->accept_one();
    if (socket.fd() < 0) {
      // Without a descriptor the port would stay readable: until one is closed, or a second.
      if (errno == EMFILE || errno == ENFILE) listen(false);
      return;
    }
    const Id id = next_id_++;
    watch(EPOLL_CTL_ADD, socket.fd(), id, EPOLLIN);
    Client* client =
        &clients_.emplace(id, Client{{std::move(socket), secret_}, {}, {}}).first->second;
    unknown_.insert(id);
    flush(id, client);
  }
  listen(false);
}

void StoreService::serve(Id id, uint32_t events) {
  const auto found = clients_.find(id);
  if (found == clients_.end()) return;  // dropped by an event of the same round
  Client* client = &found->second;
  if ((events & EPOLLOUT) != 0) flush(id, client);
  if ((events & ~static_cast<uint32_t>(EPOLLOUT)) == 0) return;
  const auto obey_it = [&](StoreFrame frame) { return obey(id, client, std::move(frame)); };
  const bool is_kept = client->link.read(obey_it);
  if (client->link.is_known()) unknown_.erase(id);
  if (!is_kept || client->link.unsent_bytes() > kMaxUnreadBytes) {
    drop(id);
  } else {
    flush(id, client);
  }
}

void StoreService::drop(Id id) {
  auto node = clients_.extract(id);  // closed at the end of this function
  Client* client = &node.mapped();
  unknown_.erase(id);
  forget_question(id, client);
  if (client->will) set(client->will->key, client->will->value);
  listen(true);
}

void StoreService::drop_late() {
  while (!unknown_.empty() && clients_.at(*unknown_.begin()).link.is_late()) {
    drop(*unknown_.begin());
  }
}

// Returns whether to keep the connection.
bool StoreService::obey(Id id, Client* client, StoreFrame frame) {
  if (frame.key.size() > kMaxKey) return false;
  switch (frame.kind) {
    case kStoreSet:
      set(frame.key, frame.value);
      return true;
    case kStoreLastWill:
      client->will = std::move(frame);
      return true;
    case kStoreGet:
      ask(id, client, frame.key);
      return true;
    case kStoreBye:
      client->will.reset();
      return false;
    default:
      return false;
  }
}

// A new question replaces one whose asker has stopped waiting.
void StoreService::ask(Id id, Client* client, const std::string& key) {
  forget_question(id, client);
  if (const auto found = values_.find(key); found != values_.end()) {
    client->link.queue(kStoreValue, key, found->second);
  } else {
    waiting_[key].insert(id);
    client->asked = key;
  }
}

void StoreService::forget_question(Id id, Client* client) {
  if (!client->asked) return;
  const auto found = waiting_.find(*client->asked);
  found->second.erase(id);
  if (found->second.empty()) waiting_.erase(found);
  client->asked.reset();
}

void StoreService::set(const std::string& key, const std::string& value) {
  const size_t bytes = key.size() + value.size();
  if (stored_bytes_ + bytes > kMaxStoredBytes) return;
  if (!values_.emplace(key, value).second) return;
  stored_bytes_ += bytes;
  const auto waiting = waiting_.extract(key);
  if (waiting.empty()) return;
  for (const Id id : waiting.mapped()) {
    Client* client = &clients_.at(id);
    client->asked.reset();
    client->link.queue(kStoreValue, key, value);
    flush(id, client);
  }
}

// Sends what the kernel takes; epoll reports when it takes more.
void StoreService::flush(Id id, Client* client) {
  if (client->link.unsent_bytes() > 0) client->link.flush();
  const bool has_more = client->link.unsent_bytes() > 0;
  if (has_more == client->is_watched_for_writing) return;
  client->is_watched_for_writing = has_more;
  watch(EPOLL_CTL_MOD, client->link.fd(), id, has_more ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

}  // namespace weft
