// net/store_link.h: the server's end of a client's connection to the store: frames in and out,
// plain or under the run's secret. Never waits.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "net/frame.h"
#include "net/handshake.h"
#include "net/socket.h"
#include "net/store_frame.h"

namespace weft {

inline const Identity kStoreIdentity = {"store"};
// With a secret, store frames (without their length) are the payloads of frames of this kind.
inline constexpr uint8_t kStoreMessage = 1;
inline const FrameBounds kStoreBounds = {{kStoreMessage, kMaxStoreFrame}};

class StoreLink {
 public:
  // Queues the challenge. secret: null where everyone may come.
  StoreLink(Socket socket, const Secret* secret);

  int fd() const { return socket_.fd(); }
  size_t unsent_bytes() const { return out_.size(); }
  // Whether the client has not proved itself in time.
  bool is_late() const;
  bool is_known() const { return is_known_; }

  // Reads what is there. Every whole frame of a known client goes to `obey`, until it returns
  // false. Returns whether to keep the connection.
  [[nodiscard]] bool read(const std::function<bool(StoreFrame)>& obey);
  void queue(uint8_t kind, const std::string& key, const std::string& value);
  void flush();

 private:
  bool take(std::string_view bytes, const std::function<bool(StoreFrame)>& obey);
  bool take_answer(std::string_view bytes);
  bool take_plain(std::string_view bytes, const std::function<bool(StoreFrame)>& obey);
  bool take_sealed(std::string_view bytes, const std::function<bool(StoreFrame)>& obey);

  Socket socket_;
  std::chrono::steady_clock::time_point start_;
  std::optional<ServerHandshake> handshake_;  // until it is known, where there is a secret
  std::optional<FrameWriter> writer_;         // from then on
  std::optional<FrameReader> reader_;
  std::string in_, out_;
  bool is_known_ = false;
};

}  // namespace weft
