// net/interface.cpp: getifaddrs.
#include "net/interface.h"

#include <arpa/inet.h>
#include <ifaddrs.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "base/error.h"

namespace weft {
namespace {

struct Interface {
  std::string name, address;
};

Interface find_interface(const std::string& name) {
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0)
    throw RunError(fmt::format("cannot list the network interfaces: {}", std::strerror(errno)));
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> list(first, ::freeifaddrs);
  std::string known;
  for (const ifaddrs* at = first; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr || at->ifa_addr->sa_family != AF_INET) continue;
    char text[INET_ADDRSTRLEN] = {};
    const auto* address = reinterpret_cast<const sockaddr_in*>(at->ifa_addr);
    ::inet_ntop(AF_INET, &address->sin_addr, text, sizeof text);
    if (name == at->ifa_name || name == text) return {at->ifa_name, text};
    known += fmt::format("{}{} ({})", known.empty() ? "" : ", ", at->ifa_name, text);
  }
  throw UserError(
      name.empty()
          ? std::string("launch.interface is empty: wanted an interface or its address")
          : fmt::format("launch.interface: this machine has no interface and no IPv4 address {}",
                        name),
      fmt::format("available: {}", known));
}

}  // namespace

std::string address_of_interface(const std::string& name) { return find_interface(name).address; }

std::string name_of_interface(const std::string& name) { return find_interface(name).name; }

}  // namespace weft
