// net/interface.h: launch.interface as the address that ranks listen on.
#pragma once

#include <string>

namespace weft {

// The IPv4 address of an interface ("lo", "eth0"), or the address itself where it is one of this
// machine's. Anything else is a UserError that lists the interfaces: 0.0.0.0 too, since our ports
// are only for trusted networks.
std::string address_of_interface(const std::string& name);
// Its name, for either form.
std::string name_of_interface(const std::string& name);

}  // namespace weft
