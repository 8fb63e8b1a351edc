// net/frame.cpp: headers and tags.
#include "net/frame.h"

#include <array>
#include <utility>

#include "base/error.h"
#include "base/poly1305.h"

namespace weft {
namespace {

// After a large frame the memory goes back: a server has many connections.
constexpr size_t kKeptBytes = 16 << 10;

// The key, for this frame alone, is the HMAC of its number and header under the session's key.
Poly1305Tag tag_of(const HmacSha256& key, uint64_t number, std::string_view header,
                   std::string_view payload) {
  HmacSha256 mac = key;
  std::array<char, 8> text;
  for (size_t i = 0; i < 8; ++i) text[i] = static_cast<char>(number >> (8 * i));
  mac.update({text.data(), text.size()});
  mac.update(header);
  return poly1305(mac.finish(), payload);
}

uint32_t read_length(std::string_view header) {
  uint32_t length = 0;
  for (size_t i = 4; i-- > 0;) length = length << 8 | static_cast<uint8_t>(header[i]);
  return length;
}

}  // namespace

std::optional<uint32_t> FrameBounds::find(uint8_t kind) const {
  for (const Bound& bound : bounds_) {
    if (bound.kind == kind) return bound.max_bytes;
  }
  return std::nullopt;
}

FrameWriter::FrameWriter(const Digest& key, FrameBounds bounds)
    : key_(bytes_of(key)), bounds_(std::move(bounds)) {}

FrameWriter::FrameWriter(FrameWriter&& other) noexcept
    : key_(other.key_),
      bounds_(std::move(other.bounds_)),
      number_(other.number_),
      is_moved_(std::exchange(other.is_moved_, true)) {}

FrameWriter& FrameWriter::operator=(FrameWriter&& other) noexcept {
  if (this == &other) return *this;
  key_ = other.key_;
  bounds_ = std::move(other.bounds_);
  number_ = other.number_;
  is_moved_ = std::exchange(other.is_moved_, true);
  return *this;
}

std::string FrameWriter::write(uint8_t kind, std::string_view payload) {
  ensure(!is_moved_, "a frame of a writer that was moved from");
  const auto max_bytes = bounds_.find(kind);
  ensure(max_bytes && payload.size() <= *max_bytes,
         fmt::format("a frame of kind {} with {} bytes", kind, payload.size()));
  std::string frame;
  frame.reserve(kFrameHeaderBytes + payload.size() + kFrameTagBytes);
  for (int i = 0; i < 4; ++i) frame += static_cast<char>(payload.size() >> (8 * i));
  frame += static_cast<char>(kind);
  const Poly1305Tag tag = tag_of(key_, number_++, frame, payload);
  frame += payload;
  frame += bytes_of(tag);
  return frame;
}

FrameReader::FrameReader(const Digest& key, FrameBounds bounds)
    : key_(bytes_of(key)), bounds_(std::move(bounds)) {}

void FrameReader::feed(std::string_view bytes) {
  if (!failure_.empty()) return;
  buffer_.erase(0, at_);
  at_ = 0;
  if (buffer_.empty() && buffer_.capacity() > kKeptBytes) buffer_ = std::string();
  buffer_ += bytes;
}

std::optional<Frame> FrameReader::next() {
  if (!failure_.empty()) throw PeerError(failure_);
  const std::string_view in = std::string_view(buffer_).substr(at_);
  if (in.size() < kFrameHeaderBytes) return std::nullopt;
  const auto kind = static_cast<uint8_t>(in[4]);
  const uint32_t length = read_length(in);
  const auto max_bytes = bounds_.find(kind);
  if (!max_bytes) fail(fmt::format("a message of unknown kind {}", kind));
  if (length > *max_bytes) {
    fail(fmt::format("a message of kind {} with {} bytes, {} at most", kind, length, *max_bytes));
  }
  if (in.size() < kFrameHeaderBytes + length + kFrameTagBytes) return std::nullopt;
  const std::string_view payload = in.substr(kFrameHeaderBytes, length);
  const std::string_view tag = in.substr(kFrameHeaderBytes + length, kFrameTagBytes);
  const Poly1305Tag wanted = tag_of(key_, number_, in.substr(0, kFrameHeaderBytes), payload);
  if (!equal_in_constant_time(tag, bytes_of(wanted))) {
    fail("a message that the peer has not sent, or not now: its tag is wrong");
  }
  ++number_;
  at_ += kFrameHeaderBytes + length + kFrameTagBytes;
  return Frame{kind, std::string(payload)};
}

void FrameReader::fail(std::string why) {
  failure_ = std::move(why);
  buffer_ = std::string();
  at_ = 0;
  throw PeerError(failure_);
}

}  // namespace weft
