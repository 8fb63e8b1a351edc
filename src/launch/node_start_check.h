// launch/node_start_check.h: whether this node sees what the supervisor sees.
#pragma once

#include "launch/node_messages.h"

namespace weft {

// Goes to the run's working directory. UserError where it is missing, a file differs, or the
// storage is not shared.
void check_node_start(const NodeStart& start);

// The hash that NodeStart::files has of a file.
std::string hash_of_file(const std::string& path);

}  // namespace weft
