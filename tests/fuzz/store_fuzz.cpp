// tests/fuzz/store_fuzz.cpp: whatever a client sends, the store's link closes the connection or
// hands out frames; a frame that was read is written as the same bytes.
//
// First byte: 0 a client where there is no secret, 1 a stranger where there is one, 2 a client that
// knows it and sends anything as its message.
#include <sys/socket.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/error.h"
#include "net/socket.h"
#include "net/store_frame.h"
#include "net/store_link.h"

namespace {

struct Ends {
  weft::Socket server, client;
};

Ends connected() {
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) std::abort();
  return {weft::Socket(pair[0]), weft::Socket(pair[1])};
}

void send(weft::Socket* socket, std::string_view bytes) {
  socket->send_all(bytes.data(), static_cast<int64_t>(bytes.size()));
}

bool check_frame(const weft::StoreFrame& frame) {
  const std::string written = weft::write_store_frame(frame.kind, frame.key, frame.value);
  const auto again = weft::parse_store_frame(written.data() + 4, written.size() - 4);
  if (!again || again->kind != frame.kind || again->key != frame.key) std::abort();
  if (again->value != frame.value) std::abort();
  return true;
}

// What the link hands out of these bytes, which fit into one read.
int frames_of(weft::StoreLink* link) {
  int frames = 0;
  const auto count = [&](const weft::StoreFrame& frame) {
    ++frames;
    return check_frame(frame);
  };
  while (link->read(count)) {
    char byte;
    if (::recv(link->fd(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) != 1) break;
  }
  return frames;
}

void anyone(std::string_view bytes) {
  Ends ends = connected();
  weft::StoreLink link(std::move(ends.server), nullptr);
  send(&ends.client, weft::write_store_frame(weft::kStoreHello, weft::kStoreProtocol, ""));
  send(&ends.client, bytes);
  frames_of(&link);
}

void stranger(std::string_view bytes, const weft::Secret& secret) {
  Ends ends = connected();
  weft::StoreLink link(std::move(ends.server), &secret);
  send(&ends.client, bytes);
  if (frames_of(&link) != 0 || link.is_known()) std::abort();
}

void known_client(std::string_view bytes, const weft::Secret& secret) {
  Ends ends = connected();
  weft::StoreLink link(std::move(ends.server), &secret);
  link.flush();
  std::string challenge(weft::kChallengeBytes, '\0'), verdict(weft::kVerdictBytes, '\0');
  weft::ClientHandshake handshake(secret, weft::kStoreIdentity, "the store");
  if (!ends.client.recv_all(challenge.data(), weft::kChallengeBytes, 1000)) std::abort();
  send(&ends.client, handshake.answer(challenge));
  if (frames_of(&link) != 0 || !link.is_known()) std::abort();
  if (!ends.client.recv_all(verdict.data(), weft::kVerdictBytes, 1000)) std::abort();
  weft::FrameWriter writer(handshake.finish(verdict).send, weft::kStoreBounds);
  send(&ends.client, writer.write(weft::kStoreMessage, bytes));
  const bool is_frame = weft::parse_store_frame(bytes.data(), bytes.size()).has_value();
  if (frames_of(&link) != (is_frame ? 1 : 0)) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const weft::Secret secret = weft::Secret::from_text("0123456789abcdef", "fuzz");
  if (size < 1) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] % 3 == 0) anyone(bytes);
  if (data[0] % 3 == 1) stranger(bytes, secret);
  if (data[0] % 3 == 2) known_client(bytes, secret);
  return 0;
}
