// exec/mesh.h: the groups of ranks that an executor's collectives use.
#pragma once

#include "comm/comm.h"

namespace weft {

struct Mesh {
  int tp = 1, dp = 1;
  // Null where this rank is alone on the axis, and while planning.
  Comm* tensor = nullptr;  // collectives of this axis run on the compute thread
  Comm* data = nullptr;    // those marked `async` on the communication thread, others in finish
  // Data-parallel ranks run passes of the same lengths at the same time.
  bool passes_agree = true;
  // Neighbours that hold copies of key/value heads, where these are not the whole tensor axis:
  // those on the two sides may differ.
  Comm* copies[2] = {nullptr, nullptr};
};

}  // namespace weft
