// net/store.h: a small key-value store over TCP in which ranks find each other and report their
// final errors.
//
// A key is set once: the first value is kept. A request for a key is answered when the key exists.
// A client may leave a will, a key that the server sets if the client's connection ends without a
// farewell: so all who wait for that key learn of a rank's death.
//
// What the server accepts is bounded: frames, keys, clients, total bytes; a client that exceeds a
// limit is disconnected. With a secret, both sides prove that they know it and every frame is
// authenticated (net/handshake.h, net/frame.h). Without one anyone who reaches the port may write:
// it listens on one address, by default loopback.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "net/frame.h"
#include "net/secret.h"
#include "net/socket.h"
#include "net/store_frame.h"

namespace weft {

// The key whose value ends the work of all who wait for it: the reason.
inline constexpr const char* kAbortKey = "abort";

class StoreServer {
 public:
  // secret: copied; null: everyone may come.
  explicit StoreServer(const std::string& host = "127.0.0.1", const std::string& port = "0",
                       const Secret* secret = nullptr);
  ~StoreServer();  // sends the clients a farewell
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  std::string endpoint() const { return listener_.local_endpoint(); }

 private:
  void work() noexcept;

  Socket listener_;
  std::optional<Secret> secret_;
  int wake_[2];  // a pipe: a byte in it stops the server
  std::thread thread_;
};

class StoreClient {
 public:
  // secret: the server's, for this call only; null where it has none. UserError where the server
  // knows another one or is another build of weft.
  StoreClient(const std::string& endpoint, int64_t deadline_ms, const Secret* secret = nullptr);
  ~StoreClient();  // sends a farewell, so that the will is not executed
  StoreClient(const StoreClient&) = delete;
  StoreClient& operator=(const StoreClient&) = delete;

  void set(const std::string& key, const std::string& value);  // from any thread
  void set_last_will(const std::string& key, const std::string& value);
  // Keys that will be waited for next: those that exist by now cost no round trip of their own. In
  // place of those of the last call; at most kMostAhead, the others are left out: values lie unread
  // until something is waited for, and the server drops clients that let much lie.
  static constexpr int kMostAhead = 8;
  void ask_ahead(const std::vector<std::string>& keys);
  // Waits for the key; null where the server sent a farewell, or close was called here. PeerError
  // where the server vanished without one, or after the deadline (< 0: none).
  [[nodiscard]] std::optional<std::string> wait_for(const std::string& key, int64_t deadline_ms);
  void close() noexcept;  // from any thread; ends wait_for

 private:
  void send(uint8_t kind, const std::string& key, const std::string& value);
  void keep(StoreFrame&& answer);
  std::string endpoint_;
  Socket socket_;
  std::mutex mutex_;  // guards sending
  std::optional<FrameWriter> writer_;
  std::optional<FrameReader> reader_;
  std::map<std::string, std::optional<std::string>> ahead_;  // asked; none: no answer so far
  std::atomic<bool> is_closed_{false};
};

}  // namespace weft
