// net/store_server.cpp: one thread that serves all clients.
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/error.h"
#include "net/store.h"
#include "net/store_frame.h"
#include "net/store_link.h"

namespace weft {
namespace {

constexpr size_t kMaxClients = 32 << 10;
constexpr size_t kMaxStoredBytes = 64 << 20;
constexpr size_t kMaxKey = 1024;

}  // namespace

struct StoreServer::Client {
  StoreLink link;
  bool is_done = false;
  std::optional<std::string> asked;  // the key it waits for
  std::optional<StoreFrame> will;
};

StoreServer::StoreServer(const std::string& host, const std::string& port, const Secret* secret)
    : listener_(Socket::listen_on(host, port)) {
  if (secret != nullptr) secret_.emplace(*secret);
  listener_.set_nonblocking();
  ensure(::pipe(wake_) == 0, "cannot create a pipe for the store");
  thread_ = std::thread([this] { work(); });
}

StoreServer::~StoreServer() {
  const char byte = 0;
  if (::write(wake_[1], &byte, 1) == 1) thread_.join();
  ::close(wake_[0]);
  ::close(wake_[1]);
}

void StoreServer::work() noexcept {
  std::vector<Client> clients;
  try {
    serve(&clients);
    for (Client& client : clients) {
      client.link.queue(kStoreBye, "", "");
      client.link.flush();
    }
  } catch (const std::exception&) {
    return;  // out of memory: connections close, which all clients notice
  }
}

void StoreServer::serve(std::vector<Client>* clients) {
  std::vector<pollfd> wanted;
  for (;;) {
    const bool is_full = clients->size() >= kMaxClients;
    bool has_unknown = false;
    wanted = {{wake_[0], POLLIN, 0}, {is_full ? -1 : listener_.fd(), POLLIN, 0}};
    for (const Client& client : *clients) {
      const int events = client.link.wants_to_write() ? POLLIN | POLLOUT : POLLIN;
      wanted.push_back({client.link.fd(), static_cast<short>(events), 0});
      has_unknown = has_unknown || !client.link.is_known();
    }
    if (::poll(wanted.data(), wanted.size(), has_unknown ? 1000 : -1) < 0) continue;
    if (wanted[0].revents != 0) return;
    for (size_t i = 0; i < clients->size(); ++i) {
      Client* client = &(*clients)[i];
      if (wanted[i + 2].revents != 0) read_from(client);
      client->is_done = client->is_done || client->link.is_late();
    }
    accept_new(clients);
    answer_those_who_ask(clients);
    std::erase_if(*clients, [](const Client& c) { return c.is_done; });
  }
}

void StoreServer::accept_new(std::vector<Client>* clients) {
  while (clients->size() < kMaxClients) {
    Socket socket = listener_.accept_one();
    if (socket.fd() < 0) return;
    StoreLink link(std::move(socket), secret_ ? &*secret_ : nullptr);
    clients->push_back({std::move(link), false, {}, {}});
  }
}

void StoreServer::read_from(Client* client) {
  const auto obey_it = [&](StoreFrame frame) { return obey(client, std::move(frame)); };
  client->is_done = !client->link.read(obey_it);
  if (client->is_done && client->will) set(client->will->key, client->will->value);
}

// Returns whether to keep the connection.
bool StoreServer::obey(Client* client, StoreFrame frame) {
  if (frame.key.size() > kMaxKey) return false;
  switch (frame.kind) {
    case kStoreSet:
      set(frame.key, std::move(frame.value));
      return true;
    case kStoreLastWill:
      client->will = std::move(frame);
      return true;
    case kStoreGet:
      client->asked = std::move(frame.key);
      return true;
    case kStoreBye:
      client->will.reset();
      return false;
    default:
      return false;
  }
}

void StoreServer::set(const std::string& key, std::string value) {
  const size_t bytes = key.size() + value.size();
  if (stored_bytes_ + bytes > kMaxStoredBytes) return;
  if (values_.emplace(key, std::move(value)).second) stored_bytes_ += bytes;
}

void StoreServer::answer_those_who_ask(std::vector<Client>* clients) {
  for (Client& client : *clients) {
    if (client.asked) {
      if (const auto found = values_.find(*client.asked); found != values_.end()) {
        client.link.queue(kStoreValue, "", found->second);
        client.asked.reset();
      }
    }
    if (client.link.wants_to_write()) client.link.flush();
  }
}

}  // namespace weft
