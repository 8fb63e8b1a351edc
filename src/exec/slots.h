// exec/slots.h: where the next leaf of a sum in fixed order goes.
//
// Leaves of a group are added one after the other; groups are added in a binary tree that is built
// like a binary counter (parallel/data_parallel.h). A leaf is added, in this order, to the sum of
// its group so far and, when it ends the group, to the sums that the tree joins then.
#pragma once

#include <bit>
#include <cstdint>

namespace weft {

struct SlotStep {
  int slot;          // where the result goes
  bool adds_slot;    // the last addend is what the slot holds
  int first, count;  // before it: slots first, first - 1, ... (count of them)
};

inline SlotStep next_slot(int64_t leaf, int64_t group_leaves) {
  const auto group = static_cast<uint64_t>(leaf / group_leaves);
  const int64_t in_group = leaf % group_leaves;
  const int current = std::popcount(group);
  const bool is_first = in_group == 0, is_last = in_group == group_leaves - 1;
  const int joins = is_last ? std::countr_one(group) : 0;
  const int slot = current - joins;
  // Addends: the group's own slot unless this leaf starts it, then those below down to `slot`.
  const int highest = is_first ? current - 1 : current;
  const bool adds_slot = highest >= slot;
  return {slot, adds_slot, highest, adds_slot ? highest - slot : 0};
}

}  // namespace weft
