// net/interface.h: launch.interface as the address that ranks listen on.
#pragma once

#include <string>

namespace weft {

// The IPv4 address of an interface ("lo", "eth0"), or the address itself where it is one of this
// machine's. UserError that lists what there is for anything else: 0.0.0.0 too, since our ports are
// for trusted networks alone.
std::string address_of_interface(const std::string& name);
// Its name, of either.
std::string name_of_interface(const std::string& name);

}  // namespace weft
