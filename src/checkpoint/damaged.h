// checkpoint/damaged.h: the only failure for which a resume skips a checkpoint.
#pragma once

#include <string>
#include <utility>

#include "base/error.h"

namespace weft {

// The bytes of a committed checkpoint are not those that were written: a wrong checksum, a
// truncated or missing file, malformed JSON. Never a file that the system failed to open or read:
// that is a RunError.
class DamagedCheckpoint : public UserError {
 public:
  explicit DamagedCheckpoint(std::string message)
      : UserError(std::move(message), "use the previous checkpoint, or copy this one again") {}
};

// Reading a committed checkpoint fails in two ways: its content is wrong, or the system could not
// read it.
template <typename Fn>
auto reading_checkpoint(const Fn& fn) {
  try {
    return fn();
  } catch (const RunError& e) {
    throw RunError(fmt::format("{}; the checkpoint was not changed", e.what()), e.hint());
  } catch (const UserError& e) {
    throw DamagedCheckpoint(e.what());
  }
}

}  // namespace weft
