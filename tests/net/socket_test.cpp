// tests/net/socket_test.cpp: connections that take long, and names with several addresses.
#include "net/socket.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>
#include <vector>

#include "base/error.h"
#include "tests/net/helpers.h"

namespace weft::testing {
namespace {

// A queue that is full drops packets, as a network that is cut does: connect(2) would wait minutes.
TEST(Socket, ConnectingEndsInTimeWherePacketsAreDropped) {
  const Socket listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(::bind(listener.fd(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(::listen(listener.fd(), 0), 0);
  const Endpoint endpoint = parse_endpoint(listener.local_endpoint());
  const auto fill = [&] {
    std::vector<Socket> connected;
    for (int i = 0; i < 100; ++i) connected.push_back(Socket::connect_to(endpoint, 300));
  };
  const auto start = std::chrono::steady_clock::now();
  EXPECT_THROW(fill(), PeerError);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

// localhost is ::1 first on many machines.
TEST(Socket, AllAddressesOfANameAreTried) {
  const Socket listener = Socket::listen_on("127.0.0.1", "0");
  const Endpoint endpoint = {"localhost", parse_endpoint(listener.local_endpoint()).port};
  const Socket socket = Socket::connect_to(endpoint, kLongMs);
  EXPECT_EQ(socket.peer_endpoint(), listener.local_endpoint());
  EXPECT_THROW(Socket::connect_to({"no.such.host.invalid", "1"}, 50), UserError);
}

}  // namespace
}  // namespace weft::testing
