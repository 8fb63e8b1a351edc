// net/store_link.cpp: bytes of a client that may be anybody.
#include "net/store_link.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <utility>

#include "base/error.h"

namespace weft {

StoreLink::StoreLink(Socket socket, const Secret* secret)
    : socket_(std::move(socket)), start_(std::chrono::steady_clock::now()) {
  if (secret != nullptr) {
    handshake_.emplace(*secret, kStoreIdentity);
    out_ = handshake_->challenge();
  } else {
    out_ = write_store_frame(kStoreChallenge, kStoreProtocol, "");
  }
}

bool StoreLink::is_late() const {
  const auto spent = std::chrono::steady_clock::now() - start_;
  return handshake_ && spent > std::chrono::milliseconds(kHandshakeMs);
}

bool StoreLink::read(const std::function<bool(StoreFrame)>& obey) {
  std::array<char, 16 << 10> buffer;
  const ssize_t got = ::recv(socket_.fd(), buffer.data(), buffer.size(), MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  return got > 0 && take({buffer.data(), static_cast<size_t>(got)}, obey);
}

bool StoreLink::take(std::string_view bytes, const std::function<bool(StoreFrame)>& obey) {
  if (handshake_) return take_answer(bytes);
  return reader_ ? take_sealed(bytes, obey) : take_plain(bytes, obey);
}

bool StoreLink::take_answer(std::string_view bytes) {
  const auto state = handshake_->receive(bytes);
  if (state == ServerHandshake::State::kWaiting) return true;
  out_ += handshake_->verdict();
  flush();
  if (state == ServerHandshake::State::kRefused) return false;
  const SessionKeys keys = handshake_->keys();
  writer_.emplace(keys.send, kStoreBounds);
  reader_.emplace(keys.receive, kStoreBounds);
  handshake_.reset();
  return is_known_ = true;
}

bool StoreLink::take_plain(std::string_view bytes, const std::function<bool(StoreFrame)>& obey) {
  in_ += bytes;
  size_t at = 0;
  bool is_good = true;
  while (is_good && in_.size() - at >= 4) {
    const uint32_t length = read_store_length(in_.data() + at);
    is_good = length <= kMaxStoreFrame;
    if (!is_good || in_.size() - at < 4 + length) break;
    auto frame = parse_store_frame(in_.data() + at + 4, length);
    at += 4 + length;
    if (is_known_) {
      is_good = frame && obey(std::move(*frame));
    } else {
      is_good = is_known_ = frame && frame->kind == kStoreHello && frame->key == kStoreProtocol;
    }
  }
  in_.erase(0, at);
  return is_good;
}

bool StoreLink::take_sealed(std::string_view bytes, const std::function<bool(StoreFrame)>& obey) {
  try {
    reader_->feed(bytes);
    while (const auto message = reader_->next()) {
      auto frame = parse_store_frame(message->payload.data(), message->payload.size());
      if (!frame || !obey(std::move(*frame))) return false;
    }
    return true;
  } catch (const PeerError&) {
    return false;
  }
}

void StoreLink::queue(uint8_t kind, const std::string& key, const std::string& value) {
  const std::string frame = write_store_frame(kind, key, value);
  if (handshake_) return;  // nothing but the handshake for those who are not known
  out_ += writer_ ? writer_->write(kStoreMessage, std::string_view(frame).substr(4)) : frame;
}

void StoreLink::flush() {
  const ssize_t sent = ::send(socket_.fd(), out_.data(), out_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent > 0) out_.erase(0, static_cast<size_t>(sent));
}

}  // namespace weft
