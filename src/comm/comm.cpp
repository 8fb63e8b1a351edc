// comm/comm.cpp: the names of the operations.
#include "comm/comm.h"

namespace weft {

const char* comm_op_name(CommOp op) {
  constexpr const char* kNames[kNumCommOps] = {"all_reduce", "reduce_scatter", "all_gather",
                                               "all_to_all", "broadcast",      "send",
                                               "recv",       "barrier"};
  return kNames[static_cast<int>(op)];
}

}  // namespace weft
