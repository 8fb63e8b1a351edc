// comm/call.h: what a rank is about to do, as announced to its peers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/comm.h"

namespace weft {

struct CommCall {
  CommOp op;
  Dtype dtype;
  Reduce reduce;
  int32_t root;
  int64_t bytes;
  int64_t location;  // shm only: of the data others read, in the world's segment
  uint32_t number;   // sequence number within this group
};

// All but the location.
bool is_same(const CommCall& a, const CommCall& b);
// "all_reduce of 4096 bytes (fp32, sum)"
std::string describe(const CommCall& call);
// "all_reduce number 12" of number << 8 | op; "no call" of 0.
std::string describe_latest(uint64_t latest);

// A rank's arguments of split, and the ranks of one colour: in order of key, then of rank.
struct SplitWish {
  int color, key;
};
std::vector<int> members_of(const std::vector<SplitWish>& wishes, int color);

}  // namespace weft
