// net/store_server.cpp: one thread that serves all clients.
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "base/error.h"
#include "net/store.h"
#include "net/store_frame.h"

namespace weft {
namespace {

constexpr size_t kMaxClients = 32 << 10;
constexpr size_t kMaxStoredBytes = 64 << 20;
constexpr size_t kMaxKey = 1024;

}  // namespace

struct StoreServer::Client {
  Socket socket;
  std::string in, out;
  bool is_known = false, is_done = false;
  std::optional<std::string> asked;  // the key it waits for
  std::optional<StoreFrame> will;
};

StoreServer::StoreServer(const std::string& host, const std::string& port)
    : listener_(Socket::listen_on(host, port)) {
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
      client.out += write_store_frame(kStoreBye, "", "");
      write_to(&client);
    }
  } catch (const std::exception&) {
    return;  // out of memory: connections close, which all clients notice
  }
}

void StoreServer::serve(std::vector<Client>* clients) {
  std::vector<pollfd> wanted;
  for (;;) {
    const bool is_full = clients->size() >= kMaxClients;
    wanted = {{wake_[0], POLLIN, 0}, {is_full ? -1 : listener_.fd(), POLLIN, 0}};
    for (const Client& client : *clients) {
      const int events = client.out.empty() ? POLLIN : POLLIN | POLLOUT;
      wanted.push_back({client.socket.fd(), static_cast<short>(events), 0});
    }
    if (::poll(wanted.data(), wanted.size(), -1) < 0) continue;
    if (wanted[0].revents != 0) return;
    for (size_t i = 0; i < clients->size(); ++i) {
      if (wanted[i + 2].revents != 0) read_from(&(*clients)[i]);
    }
    while (clients->size() < kMaxClients) {
      Client next{listener_.accept_one(), "", "", false, false, {}, {}};
      if (next.socket.fd() < 0) break;
      next.out = write_store_frame(kStoreChallenge, kStoreProtocol, "");
      clients->push_back(std::move(next));
    }
    answer_those_who_ask(clients);
    std::erase_if(*clients, [](const Client& c) { return c.is_done; });
  }
}

void StoreServer::read_from(Client* client) {
  char buffer[16 << 10];
  const ssize_t got = ::recv(client->socket.fd(), buffer, sizeof buffer, 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) {
    client->is_done = true;
  } else {
    client->in.append(buffer, static_cast<size_t>(got));
  }
  size_t at = 0;
  while (client->in.size() - at >= 4) {
    const uint32_t length = read_store_length(client->in.data() + at);
    if (length > kMaxStoreFrame) client->is_done = true;
    if (length > kMaxStoreFrame || client->in.size() - at < 4 + length) break;
    if (!obey(client, client->in.data() + at + 4, length)) client->is_done = true;
    at += 4 + length;
  }
  client->in.erase(0, at);
  if (client->is_done && client->will) set(client->will->key, client->will->value);
}

// Returns whether to keep the connection.
bool StoreServer::obey(Client* client, const char* frame, size_t bytes) {
  auto f = parse_store_frame(frame, bytes);
  if (!f || f->key.size() > kMaxKey) return false;
  if (!client->is_known) {
    client->is_known = f->kind == kStoreHello && f->key == kStoreProtocol;
    return client->is_known;
  }
  switch (f->kind) {
    case kStoreSet:
      set(f->key, std::move(f->value));
      return true;
    case kStoreLastWill:
      client->will = std::move(f);
      return true;
    case kStoreGet:
      client->asked = std::move(f->key);
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
        client.out += write_store_frame(kStoreValue, "", found->second);
        client.asked.reset();
      }
    }
    if (!client.out.empty()) write_to(&client);
  }
}

void StoreServer::write_to(Client* client) {
  const ssize_t sent =
      ::send(client->socket.fd(), client->out.data(), client->out.size(), MSG_NOSIGNAL);
  if (sent > 0) client->out.erase(0, static_cast<size_t>(sent));
}

}  // namespace weft
