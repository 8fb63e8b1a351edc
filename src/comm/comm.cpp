// comm/comm.cpp: the names of the operations.
#include "comm/comm.h"

#include "base/error.h"

namespace weft {

void Comm::adopt(Comm&) { throw BugError(std::string(name()) + " groups cannot be rebuilt"); }

const char* comm_op_name(CommOp op) {
  constexpr const char* kNames[kNumCommOps] = {"all_reduce", "reduce_scatter", "all_gather",
                                               "all_to_all", "broadcast",      "send",
                                               "recv",       "barrier"};
  return kNames[static_cast<int>(op)];
}

}  // namespace weft
