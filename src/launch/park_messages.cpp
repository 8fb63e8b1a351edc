// launch/park_messages.cpp: as JSON objects.
#include "launch/park_messages.h"

#include "launch/message_fields.h"
#include "launch/node_messages.h"

namespace weft {
namespace {

constexpr size_t kMaxSteps = 64, kMaxStack = 24 << 10;

}  // namespace

std::string Park::write() const {
  return dump_message({{"generation", generation},
                       {"reason", shortened(reason)},
                       {"is_hang", is_hang},
                       {"is_end", is_end},
                       {"step", step}});
}

Park Park::read(std::string_view text) {
  const MessageFields fields(text, "a request to park");
  return {fields.number("generation", 0, INT64_MAX), fields.text("reason"), fields.flag("is_hang"),
          fields.flag("is_end"), fields.number("step", -1, INT64_MAX)};
}

std::string Parked::write() const {
  return dump_message({{"generation", generation},
                       {"reason", shortened(reason)},
                       {"steps", array_of_numbers(steps)},
                       {"kept", array_of_numbers(kept)},
                       {"fault", shortened(fault)}});
}

Parked Parked::read(std::string_view text) {
  const MessageFields fields(text, "an agent's parked ranks");
  return {fields.number("generation", 0, INT64_MAX), fields.text("reason"),
          fields.numbers("steps", 0, kMaxSteps), fields.numbers("kept", 0, kMaxSteps),
          fields.text("fault")};
}

std::string Hung::write() const {
  return dump_message({{"generation", generation},
                       {"rank", rank},
                       {"text", shortened(text, kMaxStack)},
                       {"is_first", is_first}});
}

Hung Hung::read(std::string_view text) {
  const MessageFields fields(text, "a rank that hangs");
  return {fields.number("generation", 0, INT64_MAX), fields.number("rank", 0, kMaxRanks - 1),
          fields.text("text"), fields.flag("is_first")};
}

std::string Resume::write() const {
  return dump_message({{"generation", generation}, {"step", step}, {"store", store}});
}

Resume Resume::read(std::string_view text) {
  const MessageFields fields(text, "a node's resumption");
  return {fields.number("generation", 1, INT64_MAX), fields.number("step", 0, INT64_MAX),
          fields.text("store")};
}

}  // namespace weft
