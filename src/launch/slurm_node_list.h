// launch/slurm_node_list.h: Slurm's compressed names of nodes: "n[01-04,7],login".
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace weft {

// As `scontrol show hostnames`: n01 n02 n03 n04 n7 login. Several brackets in a name are allowed,
// "rack[0-1]n[1-2]"; the last varies fastest. UserError where the text is no such list, or has more
// than 65536 nodes.
std::vector<std::string> expand_node_list(std::string_view text);

}  // namespace weft
