// net/channel.cpp: a non-blocking socket with frames.
#include "net/channel.h"

#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;

bool would_wait(int error) { return error == EAGAIN || error == EWOULDBLOCK; }

// Whether the events came before the end.
bool wait_for_events(int fd, int events, Clock::time_point end) {
  for (;;) {
    const auto left = (end - Clock::now()) / std::chrono::milliseconds(1);
    pollfd wanted{fd, static_cast<short>(events), 0};
    const int ready = ::poll(&wanted, 1, static_cast<int>(std::clamp<int64_t>(left, 0, 1 << 30)));
    if (ready > 0) return true;
    if (ready == 0 || errno != EINTR) return false;
  }
}

}  // namespace

Channel::Channel(Socket socket, const SessionKeys& keys, const FrameBounds& bounds,
                 std::string peer)
    : socket_(std::move(socket)),
      peer_(std::move(peer)),
      writer_(keys.send, bounds),
      reader_(keys.receive, bounds) {
  socket_.set_nonblocking();
}

Channel Channel::connect(const Endpoint& endpoint, const Secret& secret, const Identity& self,
                         const FrameBounds& bounds, int64_t deadline_ms) {
  const auto start = Clock::now();
  Socket socket = Socket::connect_to(endpoint, deadline_ms);
  std::string peer = fmt::format("the {} at {}:{}", self.service, endpoint.host, endpoint.port);
  const auto spent_ms = (Clock::now() - start) / std::chrono::milliseconds(1);
  const auto left_ms = std::max<int64_t>(1, deadline_ms - spent_ms);
  const SessionKeys keys = shake_hands(&socket, secret, self, peer, left_ms);
  return {std::move(socket), keys, bounds, std::move(peer)};
}

void Channel::fail(const std::string& why) {
  socket_.shut_down();
  throw PeerError(fmt::format("{}: {}", peer_, why));
}

void Channel::send(uint8_t kind, std::string_view payload, int64_t deadline_ms) {
  const auto end = Clock::now() + std::chrono::milliseconds(deadline_ms);
  queue(kind, payload);
  while (wants_to_write()) {
    // Half a frame may be on its way, so the connection cannot be used again.
    if (!wait_for_events(socket_.fd(), POLLOUT, end)) {
      fail(fmt::format("does not read: a message of kind {} was not taken within {:.1f} s", kind,
                       static_cast<double>(deadline_ms) / 1000));
    }
    flush();
  }
}

void Channel::queue(uint8_t kind, std::string_view payload) {
  out_ += writer_.write(kind, payload);
  flush();
  if (out_.size() > kMaxQueuedBytes) {
    fail(fmt::format("does not read: {} MiB wait for it", out_.size() >> 20));
  }
}

void Channel::flush() {
  size_t sent = 0;
  while (sent < out_.size()) {
    const ssize_t got =
        ::send(socket_.fd(), out_.data() + sent, out_.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && would_wait(errno)) break;
    if (got < 0) fail(fmt::format("connection lost: {}", std::strerror(errno)));
    sent += static_cast<size_t>(got);
  }
  out_.erase(0, sent);
}

bool Channel::is_acknowledged() const {
  int waiting = 0;  // tcp(7), SIOCOUTQ
  return out_.empty() && ::ioctl(socket_.fd(), SIOCOUTQ, &waiting) == 0 && waiting == 0;
}

std::optional<Frame> Channel::try_receive() {
  for (;;) {
    try {
      if (auto frame = reader_.next()) return frame;
    } catch (const PeerError& e) {
      fail(fmt::format("refused {}", e.what()));
    }
    std::array<char, 16 << 10> buffer;
    const ssize_t got = ::recv(socket_.fd(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && would_wait(errno)) return std::nullopt;
    if (got < 0) fail(fmt::format("connection lost: {}", std::strerror(errno)));
    if (got == 0) {
      const bool is_cut = reader_.buffered_bytes() > 0;
      fail(is_cut ? "closed the connection within a message" : "closed the connection");
    }
    reader_.feed({buffer.data(), static_cast<size_t>(got)});
  }
}

Frame Channel::receive(int64_t deadline_ms) {
  const auto end = Clock::now() + std::chrono::milliseconds(deadline_ms);
  for (;;) {
    if (auto frame = try_receive()) return std::move(*frame);
    if (!wait_for_events(socket_.fd(), POLLIN, end)) {
      throw PeerError(fmt::format("{}: no message in {:.1f} s", peer_,
                                  static_cast<double>(deadline_ms) / 1000));
    }
  }
}

}  // namespace weft
