// tests/fuzz/node_messages_fuzz.cpp: whatever a peer sends as a message of agents and supervisors,
// it is refused with a PeerError, or written again as what reads the same.
//
// First byte: the kind of message.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/error.h"
#include "launch/node_messages.h"
#include "launch/park_messages.h"
#include "net/slot_messages.h"

namespace {

template <typename Message>
void check(std::string_view bytes) {
  Message message;
  try {
    message = Message::read(bytes);
  } catch (const weft::PeerError&) {
    return;
  }
  const std::string written = message.write();
  if (Message::read(written).write() != written) std::abort();
}

void check_number(std::string_view bytes) {
  int64_t number = 0;
  try {
    number = weft::read_number(bytes);
  } catch (const weft::PeerError&) {
    return;
  }
  if (weft::read_number(weft::write_number(number)) != number) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 15) {
    case 0:
      check<weft::Hello>(bytes);
      break;
    case 1:
      check<weft::Beat>(bytes);
      break;
    case 2:
      check<weft::OutputLine>(bytes);
      break;
    case 3:
      check<weft::RankEnd>(bytes);
      break;
    case 4:
      check<weft::Verdict>(bytes);
      break;
    case 5:
      check<weft::NodeStart>(bytes);
      break;
    case 7:
      check<weft::Park>(bytes);
      break;
    case 8:
      check<weft::Parked>(bytes);
      break;
    case 9:
      check<weft::Hung>(bytes);
      break;
    case 10:
      check<weft::Resume>(bytes);
      break;
    case 11:
      check<weft::SlotAsk>(bytes);
      break;
    case 12:
      check<weft::SlotList>(bytes);
      break;
    case 13:
      check<weft::SlotPut>(bytes);
      break;
    case 14:
      check<weft::Drop>(bytes);
      break;
    default:
      check_number(bytes);
  }
  return 0;
}
