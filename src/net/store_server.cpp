// net/store_server.cpp: the store's thread.
#include <unistd.h>

#include "base/error.h"
#include "net/store.h"
#include "net/store_service.h"

namespace weft {

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
  try {
    StoreService(&listener_, wake_[0], secret_ ? &*secret_ : nullptr).run();
  } catch (const std::exception&) {
    return;  // out of memory: connections close, which all clients notice
  }
}

}  // namespace weft
