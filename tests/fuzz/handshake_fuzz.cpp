// tests/fuzz/handshake_fuzz.cpp: no bytes open a connection without the secret, whatever their
// pieces; and what is read once the proof is right (the version) may be anything.
//
// First byte: what the input plays (0 a stranger at a server, 1 a server without the secret, 2 an
// agent of any version); second: how its bytes are cut.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/error.h"
#include "net/handshake.h"

namespace {

using State = weft::ServerHandshake::State;

const weft::Identity kSelf = {"supervisor", "1.2.3"};

weft::Secret secret() { return weft::Secret::from_text("0123456789abcdef", "fuzz"); }

void stranger_at_server(std::string_view bytes, size_t piece) {
  weft::ServerHandshake server(secret(), kSelf, weft::Nonce{});
  for (; !bytes.empty(); bytes.remove_prefix(std::min(piece, bytes.size()))) {
    if (server.receive(bytes.substr(0, piece)) == State::kAccepted) std::abort();
  }
  if (!server.verdict().empty()) std::abort();
}

void false_server(std::string_view bytes) {
  weft::ClientHandshake client(secret(), kSelf, "peer", weft::Nonce{});
  try {
    client.answer(bytes.substr(0, weft::kChallengeBytes));
    bytes.remove_prefix(weft::kChallengeBytes);
    if (bytes.size() < weft::kVerdictBytes) return;
    client.finish(bytes.substr(0, weft::kVerdictBytes));
    std::abort();
  } catch (const weft::UserError&) {
  }
}

void agent_of_any_version(std::string_view bytes, size_t piece) {
  if (bytes.empty() || bytes.size() > 32) return;
  const weft::Identity other = {"supervisor", std::string(bytes)};
  weft::ServerHandshake server(secret(), kSelf);
  weft::ClientHandshake client(secret(), other, "peer");
  const std::string answer = client.answer(server.challenge());
  for (size_t at = 0; at < answer.size(); at += piece) server.receive(answer.substr(at, piece));
  // Padded with zeros on the wire.
  std::string padded = kSelf.version, given = other.version;
  padded.resize(32);
  given.resize(32);
  const bool is_same = given == padded;
  if ((server.state() == State::kAccepted) != is_same) std::abort();
  try {
    client.finish(server.verdict());
    if (!is_same) std::abort();
  } catch (const weft::UserError&) {
    if (is_same) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 2, size - 2);
  const size_t piece = size_t{1} + data[1];
  if (data[0] % 3 == 0) stranger_at_server(bytes, piece);
  if (data[0] % 3 == 1) false_server(bytes);
  if (data[0] % 3 == 2) agent_of_any_version(bytes, piece);
  return 0;
}
