// net/frame.h: messages with a kind, a bounded length and a tag that only the peer can make.
//
//   length of the payload (4 bytes, little-endian), kind (1), payload, tag (16)
//
// The tag is Poly1305 of the payload. Its key, for this frame alone, is HMAC-SHA256, under the
// session's key for this direction, of the frame's number (8 bytes, counted from 0 by both sides,
// not sent) and its length and kind. So a frame that is changed, injected, repeated, left out or
// sent back to its sender is found. Cutting the stream's end is not: protocols close with a frame
// of their own.
//
// A length is believed only up to the bound of its kind, and memory is taken as bytes arrive.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/sha256.h"

namespace weft {

inline constexpr size_t kFrameHeaderBytes = 5, kFrameTagBytes = 16;

struct Frame {
  bool operator==(const Frame&) const = default;
  uint8_t kind = 0;
  std::string payload;
};

// The kinds of a protocol, each with its longest payload. A kind that is not listed is refused.
class FrameBounds {
 public:
  struct Bound {
    uint8_t kind;
    uint32_t max_bytes;
  };
  FrameBounds(std::initializer_list<Bound> bounds) : bounds_(bounds) {}
  std::optional<uint32_t> find(uint8_t kind) const;

 private:
  std::vector<Bound> bounds_;
};

class FrameWriter {
 public:
  FrameWriter(const Digest& key, FrameBounds bounds);
  // Two frames with the same number would betray the key: one that was moved from writes no more.
  FrameWriter(const FrameWriter&) = delete;
  FrameWriter& operator=(const FrameWriter&) = delete;
  FrameWriter(FrameWriter&& other) noexcept;
  FrameWriter& operator=(FrameWriter&& other) noexcept;
  // The frame's bytes; they must be sent in the order of these calls.
  [[nodiscard]] std::string write(uint8_t kind, std::string_view payload);

 private:
  HmacSha256 key_;
  FrameBounds bounds_;
  uint64_t number_ = 0;
  bool is_moved_ = false;
};

class FrameReader {
 public:
  FrameReader(const Digest& key, FrameBounds bounds);
  // Adds bytes from the peer, in any pieces.
  void feed(std::string_view bytes);
  // The next frame, null where it is not complete. PeerError where a kind, length or tag is wrong;
  // from then on always.
  [[nodiscard]] std::optional<Frame> next();
  size_t buffered_bytes() const { return buffer_.size() - at_; }

 private:
  [[noreturn]] void fail(std::string why);
  HmacSha256 key_;
  FrameBounds bounds_;
  uint64_t number_ = 0;
  std::string buffer_;
  size_t at_ = 0;  // what lies before it is read
  std::string failure_;
};

}  // namespace weft
