// checkpoint/damaged.h: the one failure for which a resume passes over a checkpoint.
#pragma once

#include <string>
#include <utility>

#include "base/error.h"

namespace weft {

// The bytes of a committed checkpoint are not those that were written: a checksum, a file cut short
// or missing, malformed JSON. Never what the system refused to open or read: that is a RunError.
class DamagedCheckpoint : public UserError {
 public:
  explicit DamagedCheckpoint(std::string message)
      : UserError(std::move(message), "use the checkpoint before it, or copy this one again") {}
};

}  // namespace weft
