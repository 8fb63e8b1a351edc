// net/handshake.cpp: proofs and session keys.
#include "net/handshake.h"

#include <algorithm>
#include <chrono>
#include <initializer_list>
#include <utility>

#include "base/error.h"
#include "base/printable.h"
#include "net/socket.h"

namespace weft {
namespace {

constexpr size_t kVersionBytes = 32;
constexpr size_t kVersionInAnswer = kHandshakeMagic.size() + sizeof(Nonce);
constexpr size_t kProofInAnswer = kVersionInAnswer + kVersionBytes;
constexpr size_t kProofInVerdict = 1 + kVersionBytes;
static_assert(kChallengeBytes == kVersionInAnswer);
static_assert(kAnswerBytes == kProofInAnswer + sizeof(Digest));
static_assert(kVerdictBytes == kProofInVerdict + sizeof(Digest));

constexpr std::string_view kClientProof = "weft client proof", kServerProof = "weft server proof",
                           kClientFrames = "weft client frames",
                           kServerFrames = "weft server frames";

// Only the first two parts vary in length, and they carry it: other parts, other bytes.
Digest derive(const Digest& key, std::string_view label, const std::string& service,
              std::initializer_list<std::string_view> parts) {
  HmacSha256 mac(bytes_of(key));
  for (const std::string_view text : {label, std::string_view(service)}) {
    const char length = static_cast<char>(text.size());
    mac.update({&length, 1});
    mac.update(text);
  }
  for (const std::string_view part : parts) mac.update(part);
  return mac.finish();
}

std::string magic_and_nonce(const Nonce& nonce) {
  return std::string(kHandshakeMagic) + std::string(nonce.begin(), nonce.end());
}

std::string version_field(const std::string& version) {
  std::string field = version;
  field.resize(kVersionBytes, '\0');
  return field;
}

std::string version_in(std::string_view bytes, size_t at) {
  const std::string_view field = bytes.substr(at, kVersionBytes);
  return printable_line(field.substr(0, field.find('\0')));
}

void check_identity(const Identity& self) {
  ensure(!self.service.empty() && self.service.size() <= 255, "a service without a name");
  ensure(!self.version.empty() && self.version.size() <= kVersionBytes, "a version too long");
}

}  // namespace

ServerHandshake::ServerHandshake(const Secret& secret, const Identity& self, const Nonce& nonce)
    : key_(secret.key()), self_(self), challenge_(magic_and_nonce(nonce)) {
  check_identity(self);
}

ServerHandshake::State ServerHandshake::receive(std::string_view bytes) {
  if (state_ != State::kWaiting) return state_;
  // The client waits for the verdict: more than an answer is no answer.
  if (bytes.size() > kAnswerBytes - answer_.size()) return refuse("sent more than an answer");
  answer_ += bytes;
  const size_t known = std::min(answer_.size(), kHandshakeMagic.size());
  if (answer_.compare(0, known, kHandshakeMagic, 0, known) != 0) {
    return refuse("does not speak this protocol");
  }
  return answer_.size() == kAnswerBytes ? judge() : state_;
}

ServerHandshake::State ServerHandshake::judge() {
  const std::string_view answer = answer_;
  const Digest wanted =
      derive(key_, kClientProof, self_.service, {challenge_, answer.substr(0, kProofInAnswer)});
  if (!equal_in_constant_time(answer.substr(kProofInAnswer), bytes_of(wanted))) {
    return refuse("does not know this run's secret");
  }
  const bool is_same = answer.substr(kVersionInAnswer, kVersionBytes) ==
                       std::string_view(version_field(self_.version));
  verdict_ = std::string(1, is_same ? '\1' : '\0') + version_field(self_.version);
  verdict_ += bytes_of(derive(key_, kServerProof, self_.service, {challenge_, answer_, verdict_}));
  if (!is_same) {
    return refuse(fmt::format("is another build of weft: {} there, {} here",
                              version_in(answer, kVersionInAnswer), self_.version));
  }
  return state_ = State::kAccepted;
}

ServerHandshake::State ServerHandshake::refuse(std::string why) {
  refusal_ = std::move(why);
  return state_ = State::kRefused;
}

SessionKeys ServerHandshake::keys() const {
  ensure(state_ == State::kAccepted, "session keys of a handshake that is not accepted");
  return {.send = derive(key_, kServerFrames, self_.service, {challenge_, answer_, verdict_}),
          .receive = derive(key_, kClientFrames, self_.service, {challenge_, answer_, verdict_})};
}

ClientHandshake::ClientHandshake(const Secret& secret, const Identity& self, std::string peer,
                                 const Nonce& nonce)
    : key_(secret.key()), self_(self), peer_(std::move(peer)), nonce_(nonce) {
  check_identity(self);
}

const std::string& ClientHandshake::answer(std::string_view challenge) {
  if (challenge.size() != kChallengeBytes || !challenge.starts_with(kHandshakeMagic)) {
    throw UserError(fmt::format("{} does not ask for this run's secret", peer_),
                    "is it the address of another program, or a run without a secret?");
  }
  challenge_ = challenge;
  answer_ = magic_and_nonce(nonce_) + version_field(self_.version);
  answer_ += bytes_of(derive(key_, kClientProof, self_.service, {challenge_, answer_}));
  return answer_;
}

SessionKeys ClientHandshake::finish(std::string_view verdict) const {
  ensure(!answer_.empty() && verdict.size() == kVerdictBytes, "a verdict before its answer");
  const Digest wanted = derive(key_, kServerProof, self_.service,
                               {challenge_, answer_, verdict.substr(0, kProofInVerdict)});
  if (!equal_in_constant_time(verdict.substr(kProofInVerdict), bytes_of(wanted))) {
    throw UserError(
        fmt::format("{} does not know this run's secret: it is not of this run", peer_),
        "check the address; on a network that is not trusted, somebody may listen there");
  }
  if (verdict[0] != '\1') {
    throw UserError(fmt::format("{} is weft {} and refuses other builds; this is weft {}", peer_,
                                version_in(verdict, 1), self_.version),
                    "install the same version and commit of weft on every node (`weft --version`)");
  }
  return {.send = derive(key_, kClientFrames, self_.service, {challenge_, answer_, verdict}),
          .receive = derive(key_, kServerFrames, self_.service, {challenge_, answer_, verdict})};
}

SessionKeys shake_hands(Socket* socket, const Secret& secret, const Identity& self,
                        const std::string& peer, int64_t deadline_ms) {
  const auto start = std::chrono::steady_clock::now();
  const auto receive = [&](char* at, size_t bytes) {
    const auto spent = (std::chrono::steady_clock::now() - start) / std::chrono::milliseconds(1);
    const int64_t left_ms = std::max<int64_t>(0, deadline_ms - spent);
    return socket->recv_all(at, static_cast<int64_t>(bytes), left_ms);
  };
  ClientHandshake handshake(secret, self, peer);
  try {
    // The magic first: another program's greeting may be shorter than a challenge.
    std::string challenge(kChallengeBytes, '\0'), verdict(kVerdictBytes, '\0');
    const size_t magic = kHandshakeMagic.size();
    bool is_open = receive(challenge.data(), magic);
    if (is_open && challenge.starts_with(kHandshakeMagic))
      is_open = receive(challenge.data() + magic, kChallengeBytes - magic);
    if (!is_open) throw NoHandshake(fmt::format("{} closed the connection at once", peer));
    const std::string& answer = handshake.answer(challenge);
    socket->send_all(answer.data(), static_cast<int64_t>(answer.size()));
    if (receive(verdict.data(), kVerdictBytes)) return handshake.finish(verdict);
  } catch (const NoHandshake&) {
    throw;
  } catch (const PeerError&) {
    throw NoHandshake(fmt::format("no handshake with {} within {:.1f} s", peer,
                                  static_cast<double>(deadline_ms) / 1000));
  }
  throw ClosedHandshake(
      fmt::format("{} closed the connection during the handshake", peer),
      "its secret is another one (use the secret file of that run), or it has ended");
}

}  // namespace weft
