// net/slot_messages.h: what is said to an agent's slot service (net/slot_service.h).
//
// Frames of an authenticated channel. Numbers are 8 bytes each, little-endian; a message of another
// length, or with a number out of its range, is a PeerError.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "net/frame.h"
#include "net/handshake.h"

namespace weft {

inline const Identity kSlotIdentity = {"slots"};
inline constexpr size_t kSlotChunk = size_t{256} << 10;  // of a frame of bytes

enum class SlotMessage : uint8_t {
  kAsk = 1,    // SlotAsk
  kSize = 2,   // the answer's: that many bytes follow; -1: there is no such slot
  kBytes = 3,  // a stretch of them, at most kSlotChunk
  kPut = 4,    // SlotPut; its layout, text and bytes follow, and kSize 0 answers when it is whole
};
FrameBounds slot_message_bounds();

// Wanted of the slot of that rank (of the node, from 0) which holds that step: its text, its
// layout, or bytes [begin, end). kList: of all its slots, whatever the step: SlotList. kLayouts: of
// all ranks of the node, where all of them have that step (write_layouts). is_previous: 1: of the
// slots of the previous layout, by its numbers (docs/design/0022-elastic.md).
struct SlotAsk {
  enum What : int64_t { kText = 0, kLayout = 1, kData = 2, kList = 3, kLayouts = 4 };
  int64_t node = 0, rank = 0, step = 0, what = kText, begin = 0, end = 0, is_previous = 0;
  std::string write() const;
  static SlotAsk read(std::string_view bytes);
};

// A rank's slots: which step is whole in each, -1: none; their size.
struct SlotList {
  std::vector<int64_t> steps;
  int64_t bytes = 0;
  std::string write() const;
  static SlotList read(std::string_view bytes);
};

// A copy of a slot of that rank of another node, of which the service keeps copies.
struct SlotPut {
  int64_t node = 0, rank = 0, slot = 0, step = 0, generation = 0;
  int64_t layout_bytes = 0, text_bytes = 0, bytes = 0;
  int64_t total() const { return layout_bytes + text_bytes + bytes; }
  std::string write() const;
  static SlotPut read(std::string_view bytes);
};

// Of the generation's store: where the slot service of that node listens.
inline std::string slots_key(int64_t node) { return "slots/" + std::to_string(node); }
// Likewise, a line per node of the previous layout: who has its slots, or their copies.
inline constexpr const char* kPreviousSlotsKey = "slots/previous";

std::string write_layouts(const std::vector<std::string>& layouts);
std::vector<std::string> read_layouts(std::string_view bytes);

std::string write_slot_number(int64_t number);
int64_t read_slot_number(std::string_view bytes);

}  // namespace weft
