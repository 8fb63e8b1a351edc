// net/store.h: a small table over TCP in which ranks find each other and leave their last words.
//
// A key is set once: the first value stays. Who asks for a key is answered when it is there. A
// client may leave a will, a key that the server sets should the client's connection end without
// farewell: so the death of a rank is known to all who wait for that key.
//
// What the server reads is bounded: frames, keys, clients, bytes in all; a client that breaks a
// bound is cut off. The server's first frame is a challenge and the client's first its answer, both
// empty today: reserved for the run's secret (docs/contract.md, Not built yet). Until then whoever
// reaches the port may write: it listens on one address, the loopback by default.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "net/socket.h"

namespace weft {

class StoreServer {
 public:
  explicit StoreServer(const std::string& host = "127.0.0.1", const std::string& port = "0");
  ~StoreServer();  // bids the clients farewell
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  std::string endpoint() const { return listener_.local_endpoint(); }

 private:
  struct Client;
  void work() noexcept;
  void serve(std::vector<Client>* clients);
  void read_from(Client* client);
  bool obey(Client* client, const char* frame, size_t bytes);
  void set(const std::string& key, std::string value);
  void answer_those_who_ask(std::vector<Client>* clients);
  static void write_to(Client* client);

  Socket listener_;
  int wake_[2];  // a pipe: a byte in it ends the server
  std::map<std::string, std::string> values_;
  size_t stored_bytes_ = 0;
  std::thread thread_;
};

class StoreClient {
 public:
  StoreClient(const std::string& endpoint, int64_t deadline_ms);
  ~StoreClient();  // says farewell, so that no will is executed
  StoreClient(const StoreClient&) = delete;
  StoreClient& operator=(const StoreClient&) = delete;

  void set(const std::string& key, const std::string& value);  // from any thread
  void set_last_will(const std::string& key, const std::string& value);
  // Waits for the key; null where the server bade farewell, or close was called here. PeerError
  // where the server is gone without a word, or after the deadline (< 0: none).
  [[nodiscard]] std::optional<std::string> wait_for(const std::string& key, int64_t deadline_ms);
  void close() noexcept;  // from any thread; ends wait_for

 private:
  void send(uint8_t kind, const std::string& key, const std::string& value);
  std::string endpoint_;
  Socket socket_;
  std::mutex mutex_;  // over sending
  std::atomic<bool> is_closed_{false};
};

}  // namespace weft
