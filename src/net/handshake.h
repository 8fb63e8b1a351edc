// net/handshake.h: both sides of a connection prove that they know the run's secret.
//
//   server -> client   challenge  magic, nonce of the server                             40 bytes
//   client -> server   answer     magic, nonce of the client, its version, proof        104 bytes
//   server -> client   verdict    accepted or not, its version, proof                    65 bytes
//
// A proof is an HMAC-SHA256 under the secret of a label (client's, server's), the service's name
// and every byte exchanged before it. Sizes are fixed: a side compares the magic and the proof, and
// looks at nothing else before the proof is right. The client proves first, so a stranger gets a
// nonce and then a closed connection. Versions and commits (base/version.h) are compared after
// that: a mismatch is reported under proof. The keys of the session's frames (net/frame.h) come
// from the same bytes.
//
// These classes hold no socket: bytes in, bytes out.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/sha256.h"
#include "base/version.h"
#include "net/secret.h"

namespace weft {

class Socket;

inline constexpr std::string_view kHandshakeMagic = "weft-hs1";  // the protocol's version is in it
inline constexpr size_t kChallengeBytes = 40, kAnswerBytes = 104, kVerdictBytes = 65;
// How long a server waits for an answer.
inline constexpr int64_t kHandshakeMs = 10'000;

// What a side says about itself. The service ("store", "supervisor") is not sent: a proof made for
// one is worth nothing to another.
struct Identity {
  std::string service;
  std::string version = build_name();  // 32 bytes at most
};

struct SessionKeys {
  Digest send, receive;
};

class ServerHandshake {
 public:
  enum class State { kWaiting, kAccepted, kRefused };

  ServerHandshake(const Secret& secret, const Identity& self, const Nonce& nonce = random_nonce());
  const std::string& challenge() const { return challenge_; }
  // Takes bytes of the answer, as they arrive.
  State receive(std::string_view bytes);
  State state() const { return state_; }
  // To be sent once the state is not kWaiting; empty where the client does not know the secret.
  const std::string& verdict() const { return verdict_; }
  const std::string& refusal() const { return refusal_; }  // why, for the server's log
  SessionKeys keys() const;                                // when accepted

 private:
  State judge();
  State refuse(std::string why);
  Digest key_;
  Identity self_;
  std::string challenge_, answer_, verdict_, refusal_;
  State state_ = State::kWaiting;
};

class ClientHandshake {
 public:
  // `peer` names the server in messages: "the store at node7:4711".
  ClientHandshake(const Secret& secret, const Identity& self, std::string peer,
                  const Nonce& nonce = random_nonce());
  // The answer to a challenge; UserError where it is none.
  const std::string& answer(std::string_view challenge);
  // UserError where the server does not know the secret, or is of another version.
  SessionKeys finish(std::string_view verdict) const;

 private:
  Digest key_;
  Identity self_;
  std::string peer_;
  Nonce nonce_;
  std::string challenge_, answer_;
};

// The server has closed the connection instead of a verdict: it has another secret, or ends.
class ClosedHandshake : public UserError {
 public:
  using UserError::UserError;
};
// Somebody has taken the connection, and has not asked for the secret.
class NoHandshake : public PeerError {
 public:
  using PeerError::PeerError;
};

// The client's side over a connected socket, within deadline_ms. UserError as above;
// ClosedHandshake and NoHandshake, the latter also after the deadline.
SessionKeys shake_hands(Socket* socket, const Secret& secret, const Identity& self,
                        const std::string& peer, int64_t deadline_ms);

}  // namespace weft
