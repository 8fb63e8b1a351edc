// net/store_service.h: the store's loop: one thread, all clients, work in proportion to what
// happens rather than to how many are connected.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "net/secret.h"
#include "net/socket.h"
#include "net/store_link.h"

namespace weft {

class StoreService {
 public:
  // wake: a descriptor; a byte in it ends run. secret: null where everyone may come.
  StoreService(const Socket* listener, int wake, const Secret* secret);
  StoreService(const StoreService&) = delete;
  StoreService& operator=(const StoreService&) = delete;

  void run();  // ends with a farewell to all

 private:
  // Never used again, unlike a descriptor; in the order of arrival.
  using Id = uint64_t;
  struct Client {
    StoreLink link;
    std::optional<std::string> asked;  // the key it waits for
    std::optional<StoreFrame> will;
    bool is_watched_for_writing = false;
  };

  void watch(int operation, int fd, Id id, uint32_t events) const;
  void listen(bool is_wanted);
  void accept_new();
  void serve(Id id, uint32_t events);
  void drop(Id id);
  void drop_late();
  bool obey(Id id, Client* client, StoreFrame frame);
  void set(const std::string& key, const std::string& value);
  void ask(Id id, Client* client, const std::string& key);
  void forget_question(Id id, Client* client);
  void flush(Id id, Client* client);

  const Socket* listener_;
  const Secret* secret_;
  Socket poll_;  // an epoll descriptor
  bool is_listening_ = false;
  Id next_id_;
  std::map<Id, Client> clients_;
  std::set<Id> unknown_;
  std::map<std::string, std::set<Id>> waiting_;  // by key
  std::map<std::string, std::string> values_;
  size_t stored_bytes_ = 0;
};

}  // namespace weft
