// launch/previous_slots.h: what the slots of a layout hold that has ended, and who has them
// (docs/design/0022-elastic.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launch/park_messages.h"

namespace weft {

// By node; none: it is lost, and its partner's copies count, which the next node keeps.
using ParkedNodes = std::vector<std::optional<Parked>>;

// The newest step that is whole on every node, or in its partner's copies.
std::optional<int64_t> newest_parked_step(const ParkedNodes& nodes);

class PreviousSlots {
 public:
  // endpoints: of the slot services of the nodes that have parked.
  PreviousSlots(ParkedNodes nodes, std::vector<std::string> endpoints);

  void lose(const std::string& endpoint);  // whoever has it is gone
  std::optional<int64_t> newest_step() const { return newest_parked_step(nodes_); }
  // Where the slots of each node can be read; of all of them there is a common step.
  std::vector<std::string> endpoints() const;

 private:
  ParkedNodes nodes_;
  std::vector<std::string> endpoints_;
};

}  // namespace weft
