// net/slot_messages.cpp: numbers, read strictly.
#include "net/slot_messages.h"

#include <array>

#include "base/error.h"
#include "net/shm_world.h"
#include "net/snapshot_slots.h"

namespace weft {
namespace {

constexpr size_t kNumberBytes = 8;
constexpr int64_t kMaxLayout = int64_t{64} << 20, kMaxSlot = int64_t{1} << 42;

template <size_t kCount>
std::array<int64_t, kCount> read_numbers(std::string_view bytes) {
  if (bytes.size() != kCount * kNumberBytes)
    throw PeerError("a message about slots of a wrong length");
  std::array<int64_t, kCount> numbers;
  for (size_t i = 0; i < kCount; ++i) {
    uint64_t value = 0;
    for (size_t b = kNumberBytes; b-- > 0;)
      value = value << 8 | static_cast<uint8_t>(bytes[i * kNumberBytes + b]);
    numbers[i] = static_cast<int64_t>(value);
  }
  return numbers;
}

void check_range(bool is_good) {
  if (!is_good) throw PeerError("a message about slots with a number out of its range");
}

}  // namespace

FrameBounds slot_message_bounds() {
  const auto bound = [](SlotMessage kind, uint32_t bytes) {
    return FrameBounds::Bound{static_cast<uint8_t>(kind), bytes};
  };
  return {bound(SlotMessage::kAsk, 7 * kNumberBytes), bound(SlotMessage::kSize, kNumberBytes),
          bound(SlotMessage::kBytes, kSlotChunk), bound(SlotMessage::kPut, 8 * kNumberBytes)};
}

std::string write_slot_number(int64_t number) {
  std::string bytes;
  for (size_t i = 0; i < kNumberBytes; ++i)
    bytes += static_cast<char>(static_cast<uint64_t>(number) >> (8 * i));
  return bytes;
}

int64_t read_slot_number(std::string_view bytes) { return read_numbers<1>(bytes)[0]; }

std::string SlotAsk::write() const {
  std::string bytes;
  for (const int64_t number : {node, rank, step, what, begin, end, is_previous})
    bytes += write_slot_number(number);
  return bytes;
}

SlotAsk SlotAsk::read(std::string_view bytes) {
  const auto [node, rank, step, what, begin, end, is_previous] = read_numbers<7>(bytes);
  check_range(node >= 0 && rank >= 0 && rank < kMaxLocalRanks && step >= 0);
  check_range(what >= kText && what <= kLayouts && begin >= 0 && end >= begin);
  check_range(is_previous == 0 || is_previous == 1);
  return {node, rank, step, what, begin, end, is_previous};
}

std::string SlotList::write() const {
  std::string all;
  for (const int64_t step : steps) all += write_slot_number(step);
  return all + write_slot_number(bytes);
}

SlotList SlotList::read(std::string_view all) {
  const auto numbers = read_numbers<SnapshotSlots::kPerRank + 1>(all);
  SlotList list{{numbers.begin(), numbers.end() - 1}, numbers.back()};
  for (const int64_t step : list.steps) check_range(step >= -1);
  check_range(list.bytes >= 0 && list.bytes <= kMaxSlot);
  return list;
}

std::string write_layouts(const std::vector<std::string>& layouts) {
  std::string all;
  for (const std::string& layout : layouts)
    all += write_slot_number(static_cast<int64_t>(layout.size())) + layout;
  return all;
}

std::vector<std::string> read_layouts(std::string_view bytes) {
  std::vector<std::string> layouts;
  while (!bytes.empty()) {
    const int64_t size = read_slot_number(bytes.substr(0, kNumberBytes));
    bytes.remove_prefix(kNumberBytes);
    check_range(size >= 0 && size <= static_cast<int64_t>(bytes.size()));
    layouts.emplace_back(bytes.substr(0, static_cast<size_t>(size)));
    bytes.remove_prefix(static_cast<size_t>(size));
  }
  return layouts;
}

std::string SlotPut::write() const {
  std::string all;
  for (const int64_t number : {node, rank, slot, step, generation, layout_bytes, text_bytes, bytes})
    all += write_slot_number(number);
  return all;
}

SlotPut SlotPut::read(std::string_view all) {
  const auto [node, rank, slot, step, generation, layout, text, bytes] = read_numbers<8>(all);
  check_range(node >= 0 && rank >= 0 && rank < kMaxLocalRanks && step >= 0 && generation >= 0);
  check_range(slot >= 0 && slot < SnapshotSlots::kPerRank && layout >= 0 && layout <= kMaxLayout);
  check_range(text >= 0 && text <= static_cast<int64_t>(SnapshotSlots::kTextBytes));
  check_range(bytes > 0 && bytes <= kMaxSlot);
  return {node, rank, slot, step, generation, layout, text, bytes};
}

}  // namespace weft
