// net/store_client.cpp: one request at a time.
#include <algorithm>
#include <utility>

#include "base/error.h"
#include "net/store.h"
#include "net/store_frame.h"
#include "net/store_link.h"

namespace weft {
namespace {

std::optional<StoreFrame> read_plain(Socket* socket, int64_t deadline_ms) {
  char head[4];
  if (!socket->recv_all(head, sizeof head, deadline_ms)) return std::nullopt;
  const uint32_t length = read_store_length(head);
  std::string rest(std::min(length, kMaxStoreFrame), '\0');
  if (length > kMaxStoreFrame ||
      !socket->recv_all(rest.data(), static_cast<int64_t>(rest.size()), deadline_ms)) {
    return std::nullopt;
  }
  return parse_store_frame(rest.data(), rest.size());
}

std::optional<StoreFrame> read_sealed(Socket* socket, FrameReader* reader, int64_t deadline_ms) {
  char head[kFrameHeaderBytes];
  if (!socket->recv_all(head, sizeof head, deadline_ms)) return std::nullopt;
  reader->feed({head, sizeof head});
  auto message = reader->next();  // checks the length
  std::string rest(read_store_length(head) + kFrameTagBytes, '\0');
  if (!socket->recv_all(rest.data(), static_cast<int64_t>(rest.size()), deadline_ms)) {
    return std::nullopt;
  }
  reader->feed(rest);
  message = reader->next();
  ensure(message.has_value(), "a frame of the store without its end");
  return parse_store_frame(message->payload.data(), message->payload.size());
}

}  // namespace

StoreClient::StoreClient(const std::string& endpoint, int64_t deadline_ms, const Secret* secret)
    : endpoint_(endpoint), socket_(Socket::connect_to(parse_endpoint(endpoint), deadline_ms)) {
  if (secret != nullptr) {
    const std::string peer = fmt::format("the store at {}", endpoint);
    const SessionKeys keys = shake_hands(&socket_, *secret, kStoreIdentity, peer, deadline_ms);
    writer_.emplace(keys.send, kStoreBounds);
    reader_.emplace(keys.receive, kStoreBounds);
    return;
  }
  const auto challenge = read_plain(&socket_, deadline_ms);
  if (!challenge || challenge->kind != kStoreChallenge || challenge->key != kStoreProtocol) {
    throw PeerError(
        fmt::format("the server at {} is not a weft store of this version, or it asks for "
                    "a secret that was not given",
                    endpoint));
  }
  send(kStoreHello, kStoreProtocol, "");
}

StoreClient::~StoreClient() {
  try {
    if (!is_closed_) send(kStoreBye, "", "");
  } catch (const PeerError&) {
    return;  // the server closed first
  }
}

void StoreClient::send(uint8_t kind, const std::string& key, const std::string& value) {
  std::string frame = write_store_frame(kind, key, value);
  ensure(frame.size() <= kMaxStoreFrame, "a value too long for the store");
  const std::lock_guard lock(mutex_);
  if (writer_) frame = writer_->write(kStoreMessage, std::string_view(frame).substr(4));
  socket_.send_all(frame.data(), static_cast<int64_t>(frame.size()));
}

void StoreClient::set(const std::string& key, const std::string& value) {
  send(kStoreSet, key, value);
}

void StoreClient::set_last_will(const std::string& key, const std::string& value) {
  send(kStoreLastWill, key, value);
}

void StoreClient::ask_ahead(const std::vector<std::string>& keys) {
  std::erase_if(ahead_, [&](const auto& asked) {
    return std::find(keys.begin(), keys.end(), asked.first) == keys.end();
  });
  for (const std::string& key : keys) {
    if (std::ssize(ahead_) == kMostAhead) return;
    if (ahead_.emplace(key, std::nullopt).second) send(kStoreGet, key, "");
  }
}

// One of ask_ahead. Others answer earlier questions, whose deadline had passed.
void StoreClient::keep(StoreFrame&& answer) {
  if (const auto asked = ahead_.find(answer.key); asked != ahead_.end())
    asked->second = std::move(answer.value);
}

// The server forgets a question that it could not answer when the next one comes: a key that was
// asked for ahead is asked for again.
std::optional<std::string> StoreClient::wait_for(const std::string& key, int64_t deadline_ms) {
  const auto ahead = ahead_.extract(key);
  if (!ahead.empty() && ahead.mapped()) return ahead.mapped();
  try {
    send(kStoreGet, key, "");
    for (;;) {
      auto answer = reader_ ? read_sealed(&socket_, &*reader_, deadline_ms)
                            : read_plain(&socket_, deadline_ms);
      if (answer && answer->kind == kStoreBye) return std::nullopt;
      if (!answer || answer->kind != kStoreValue) break;
      if (answer->key == key) return answer->value;
      keep(std::move(*answer));
    }
  } catch (const PeerError& e) {
    if (is_closed_) return std::nullopt;
    throw PeerError(fmt::format("asking the store at {} for {}: {}", endpoint_, key, e.what()));
  }
  if (is_closed_) return std::nullopt;
  throw PeerError(fmt::format("the store at {} is gone: its process ended", endpoint_));
}

void StoreClient::close() noexcept {
  try {
    if (!is_closed_.exchange(true)) send(kStoreBye, "", "");
  } catch (const PeerError&) {
    is_closed_ = true;
  }
  socket_.shut_down();
}

}  // namespace weft
