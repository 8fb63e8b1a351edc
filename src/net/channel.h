// net/channel.h: an authenticated connection: frames out, frames in, errors that name the peer.
//
// Between the supervisor and an agent. Nothing waits unless it is asked to, so that one thread can
// poll hundreds of them:
//
//   poll(fd(), POLLIN | (wants_to_write() ? POLLOUT : 0))
//   flush();
//   while (auto frame = try_receive()) ...      until null: frames may lie in memory already
//
// One thread may send while another receives; two that send need a lock. Content is authenticated,
// not encrypted (docs/design/0017-channels.md). Every failure is a PeerError; except after a
// deadline of receive the channel is then shut down.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "net/frame.h"
#include "net/handshake.h"
#include "net/socket.h"

namespace weft {

class Channel {
 public:
  // After the handshake. `peer` names the other side in messages: "the agent at 10.0.0.3:4711".
  Channel(Socket socket, const SessionKeys& keys, const FrameBounds& bounds, std::string peer);
  // Connects and proves the secret within deadline_ms; errors as shake_hands.
  static Channel connect(const Endpoint& endpoint, const Secret& secret, const Identity& self,
                         const FrameBounds& bounds, int64_t deadline_ms);

  int fd() const { return socket_.fd(); }
  const std::string& peer() const { return peer_; }
  std::string local_host() const { return parse_endpoint(socket_.local_endpoint()).host; }

  // Waits until the kernel has taken the frame, and what was queued before it.
  void send(uint8_t kind, std::string_view payload, int64_t deadline_ms);
  // Sends what the kernel takes now and keeps the rest for flush. A peer that does not read until
  // kMaxQueuedBytes wait for it is lost.
  void queue(uint8_t kind, std::string_view payload);
  void flush();
  bool wants_to_write() const { return !out_.empty(); }
  size_t queued_bytes() const { return out_.size(); }
  // Whether the other side's system, or a proxy before it, has acknowledged all that was sent: it
  // is there, though its process may stand still.
  bool is_acknowledged() const;

  // The next frame; null where none is complete. Never waits.
  [[nodiscard]] std::optional<Frame> try_receive();
  [[nodiscard]] Frame receive(int64_t deadline_ms);

  void shut_down() noexcept { socket_.shut_down(); }  // from any thread

  static constexpr size_t kMaxQueuedBytes = 8 << 20;

 private:
  [[noreturn]] void fail(const std::string& why);
  Socket socket_;
  std::string peer_;
  FrameWriter writer_;
  FrameReader reader_;
  std::string out_;  // sealed, not yet taken by the kernel
};

}  // namespace weft
