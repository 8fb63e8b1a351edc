// tests/fuzz/channel_fuzz.cpp: bytes without the key are never a frame, and take no more memory
// than they are; frames with it arrive whatever the pieces, until the first changed byte.
//
// First byte: 0 the input is on the wire, else it is cut into payloads, sealed, and byte `first *
// length / 256` of the wire is changed (255: none). Second byte: the size of the pieces.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "net/frame.h"

namespace {

const weft::FrameBounds kBounds = {{1, 64}, {2, 2048}, {3, 0}};
const weft::Digest kKey = weft::sha256("fuzz");

// Reads the wire in pieces; what arrived before an error.
std::vector<weft::Frame> read_all(std::string_view wire, size_t piece, bool* has_failed) {
  weft::FrameReader reader(kKey, kBounds);
  std::vector<weft::Frame> frames;
  try {
    for (; !wire.empty(); wire.remove_prefix(std::min(piece, wire.size()))) {
      reader.feed(wire.substr(0, piece));
      while (auto frame = reader.next()) frames.push_back(std::move(*frame));
      if (reader.buffered_bytes() > 2048 + 21) std::abort();
    }
  } catch (const weft::PeerError&) {
    *has_failed = true;
  }
  return frames;
}

void frames_with_a_change(std::string_view bytes, size_t piece, uint8_t change) {
  weft::FrameWriter writer(kKey, kBounds);
  std::vector<weft::Frame> sent;
  std::vector<size_t> ends;
  std::string wire;
  while (!bytes.empty()) {
    const auto kind = static_cast<uint8_t>(1 + static_cast<uint8_t>(bytes[0]) % 3);
    bytes.remove_prefix(1);
    const size_t size = std::min<size_t>(bytes.size(), kind == 3 ? 0 : kind == 1 ? 7 : 60);
    sent.push_back({kind, std::string(bytes.substr(0, size))});
    bytes.remove_prefix(size);
    wire += writer.write(kind, sent.back().payload);
    ends.push_back(wire.size());
  }
  size_t changed = wire.size();
  if (change != 255 && !wire.empty()) {
    changed = wire.size() * change / 256;
    wire[changed] = static_cast<char>(wire[changed] ^ 0x40);
  }
  bool has_failed = false;
  const auto frames = read_all(wire, piece, &has_failed);
  const auto whole =
      static_cast<size_t>(std::upper_bound(ends.begin(), ends.end(), changed) - ends.begin());
  if (frames.size() != whole) std::abort();
  if (!std::equal(frames.begin(), frames.end(), sent.begin())) std::abort();
  if (has_failed && changed == wire.size()) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 2, size - 2);
  const size_t piece = size_t{1} + data[1];
  if (data[0] == 0) {
    bool has_failed = false;
    if (!read_all(bytes, piece, &has_failed).empty()) std::abort();
  } else {
    frames_with_a_change(bytes, piece, data[0]);
  }
  return 0;
}
