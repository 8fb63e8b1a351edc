// launch/process_stack.h: where the threads of a child are, for one that hangs.
#pragma once

#include <sys/types.h>

#include <string>

namespace weft {

// One paragraph per thread: its name, and its functions, innermost first, one per line; "" where
// there is no such process. Stops each thread for a moment. Where the system forbids that, the
// paragraph says so.
std::string process_stack(pid_t pid);

}  // namespace weft
