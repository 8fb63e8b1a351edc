// net/regroup.h: how ranks are asked to make way for another layout (docs/design/0022-elastic.md).
#pragma once

namespace weft {

// For ShmWorld::request_stop, in place of a signal: complete the step, save, and exit with
// 128 + kRegroup. No signal that a process may get has these numbers here: they are the last of the
// real-time ones, which weft does not handle.
inline constexpr int kRegroup = 64;
inline constexpr int kRegroupExit = 128 + kRegroup;
// The same of a run that ends, since nodes are missing that nobody has replaced in time.
inline constexpr int kSaveAndEnd = 63;

}  // namespace weft
