// net/channel_acceptor.cpp: many handshakes at once, in one thread.
#include "net/channel_acceptor.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "base/error.h"

namespace weft {
namespace {

constexpr size_t kMaxRefusals = 100;

// A challenge or a verdict: the socket is new and its buffer empty, so it takes all or is gone.
bool send_whole(const Socket& socket, const std::string& bytes) {
  const ssize_t sent = ::send(socket.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  return sent == static_cast<ssize_t>(bytes.size());
}

}  // namespace

ChannelAcceptor::ChannelAcceptor(const std::string& host, const std::string& port,
                                 const Secret& secret, Identity self, FrameBounds bounds,
                                 PendingLimits limits)
    : listener_(Socket::listen_on(host, port)),
      secret_(secret),
      self_(std::move(self)),
      bounds_(std::move(bounds)),
      limits_(limits) {
  listener_.set_nonblocking();
}

void ChannelAcceptor::add_descriptors(std::vector<pollfd>* wanted) const {
  wanted->push_back({is_crowded() ? -1 : listener_.fd(), POLLIN, 0});
  for (const Pending& pending : pending_) wanted->push_back({pending.socket.fd(), POLLIN, 0});
}

int ChannelAcceptor::until_deadline_ms() const {
  const int64_t starved_ms = is_starved_ ? 1000 : -1;
  if (pending_.empty()) return static_cast<int>(starved_ms);
  return static_cast<int>(std::max<int64_t>(0, left_ms(pending_.front())));
}

int64_t ChannelAcceptor::left_ms(const Pending& pending) const {
  const auto spent = (Clock::now() - pending.start) / std::chrono::milliseconds(1);
  return (is_crowded() ? limits_.crowded_ms : limits_.handshake_ms) - spent;
}

std::vector<Channel> ChannelAcceptor::accept_known() {
  std::vector<Channel> known;
  accept_new();
  std::erase_if(pending_, [&](Pending& pending) { return !advance(&pending, &known); });
  return known;
}

void ChannelAcceptor::accept_new() {
  is_starved_ = false;
  while (pending_.size() < limits_.max_pending) {
    Socket socket = listener_.accept_one();
    if (socket.fd() < 0) {
      is_starved_ = errno == EMFILE || errno == ENFILE;
      return;
    }
    Pending next{std::move(socket), ServerHandshake(secret_, self_), Clock::now()};
    if (send_whole(next.socket, next.handshake.challenge())) pending_.push_back(std::move(next));
  }
}

// Returns whether it is still pending.
bool ChannelAcceptor::advance(Pending* pending, std::vector<Channel>* known) {
  std::array<char, kAnswerBytes + 1> buffer;
  const ssize_t got = ::recv(pending->socket.fd(), buffer.data(), buffer.size(), MSG_DONTWAIT);
  const bool is_silent = got < 0 && (errno == EAGAIN || errno == EINTR);
  if (got <= 0 && !is_silent) {
    note_refusal(*pending, "closed the connection during the handshake");
    return false;
  }
  ServerHandshake& handshake = pending->handshake;
  if (got > 0) handshake.receive({buffer.data(), static_cast<size_t>(got)});
  if (handshake.state() == ServerHandshake::State::kWaiting) {
    if (left_ms(*pending) > 0) return true;
    note_refusal(*pending, "has not answered in time");
    return false;
  }
  const bool is_told =
      handshake.verdict().empty() || send_whole(pending->socket, handshake.verdict());
  if (handshake.state() == ServerHandshake::State::kRefused) {
    note_refusal(*pending, handshake.refusal());
  } else if (is_told) {
    std::string peer = pending->socket.peer_endpoint();
    known->emplace_back(std::move(pending->socket), handshake.keys(), bounds_, std::move(peer));
  }
  return false;
}

void ChannelAcceptor::note_refusal(const Pending& pending, const std::string& why) {
  if (refusals_.size() >= kMaxRefusals) return;
  refusals_.push_back(fmt::format("{} {}", pending.socket.peer_endpoint(), why));
}

std::vector<std::string> ChannelAcceptor::take_refusals() { return std::exchange(refusals_, {}); }

}  // namespace weft
