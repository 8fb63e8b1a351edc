// net/channel_acceptor.h: a listening port that hands out channels to those who know the secret.
//
// For a poll loop: the owner adds the descriptors of add_descriptors to its own, waits at most
// until_deadline_ms, and calls accept_known. Connections that are not known yet are limited in
// number and time; further ones wait in the kernel's queue. When strangers fill the number, the
// time shrinks: who knows the secret needs one round trip.
#pragma once

#include <poll.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "net/channel.h"
#include "net/handshake.h"

namespace weft {

struct PendingLimits {
  size_t max_pending = 1024;
  int64_t handshake_ms = kHandshakeMs;
  int64_t crowded_ms = 2000;  // instead, while there are max_pending, or no descriptors left
};

class ChannelAcceptor {
 public:
  ChannelAcceptor(const std::string& host, const std::string& port, const Secret& secret,
                  Identity self, FrameBounds bounds, PendingLimits limits = {});

  std::string endpoint() const { return listener_.local_endpoint(); }

  // The listener and every connection that is still unknown.
  void add_descriptors(std::vector<pollfd>* wanted) const;
  // Milliseconds until accept_known has to be called, whatever poll reports; -1: any time.
  [[nodiscard]] int until_deadline_ms() const;
  // Advances all handshakes without waiting. `peer` of a channel is its address.
  [[nodiscard]] std::vector<Channel> accept_known();
  // Why connections were closed since the last call: "10.0.0.3:4711 does not know this run's
  // secret". At most 100 are kept.
  [[nodiscard]] std::vector<std::string> take_refusals();
  size_t num_pending() const { return pending_.size(); }

 private:
  using Clock = std::chrono::steady_clock;
  struct Pending {
    Socket socket;
    ServerHandshake handshake;
    Clock::time_point start;
  };
  void accept_new();
  bool is_crowded() const { return is_starved_ || pending_.size() >= limits_.max_pending; }
  int64_t left_ms(const Pending& pending) const;
  bool advance(Pending* pending, std::vector<Channel>* known);
  void note_refusal(const Pending& pending, const std::string& why);

  Socket listener_;
  Secret secret_;
  Identity self_;
  FrameBounds bounds_;
  PendingLimits limits_;
  std::vector<Pending> pending_;  // oldest first
  bool is_starved_ = false;       // of descriptors
  std::vector<std::string> refusals_;
};

}  // namespace weft
