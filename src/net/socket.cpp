// net/socket.cpp: system calls, with errors that name the address.
#include "net/socket.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>

#include "base/error.h"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;
using AddressList = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

AddressList resolve(const std::string& host, const std::string& port, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  const int bad = ::getaddrinfo(host.c_str(), port.c_str(), &hints, &found);
  require(bad == 0, "cannot resolve the address {}:{}: {}", host, port, ::gai_strerror(bad));
  return {found, &::freeaddrinfo};
}

void send_at_once(int fd) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

int64_t ms_left(Clock::time_point end) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
}

// Connects within the time that is left; 0 or errno. A network that drops packets would hold a
// blocking call for minutes.
int connect_within(int fd, const addrinfo& to, Clock::time_point end) {
  const int flags = ::fcntl(fd, F_GETFL);
  ::fcntl(fd, F_SETFL, flags | O_NONBLOCK);
  int why = ::connect(fd, to.ai_addr, to.ai_addrlen) == 0 ? 0 : errno;
  while (why == EINPROGRESS) {
    pollfd wanted{fd, POLLOUT, 0};
    const int ready = ::poll(&wanted, 1, static_cast<int>(std::max<int64_t>(0, ms_left(end))));
    if (ready < 0 && errno == EINTR) continue;
    socklen_t length = sizeof why;
    if (ready <= 0) return ETIMEDOUT;
    if (::getsockopt(fd, SOL_SOCKET, SO_ERROR, &why, &length) != 0) return errno;
  }
  ::fcntl(fd, F_SETFL, flags);
  return why;
}

using NameOf = int (*)(int, sockaddr*, socklen_t*);

// Of getsockname or getpeername; empty where there is none.
std::string endpoint_text(int fd, NameOf name_of) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  char host[NI_MAXHOST], port[NI_MAXSERV];
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (name_of(fd, generic, &length) != 0 ||
      ::getnameinfo(generic, length, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "";
  }
  return address.ss_family == AF_INET6 ? fmt::format("[{}]:{}", host, port)
                                       : fmt::format("{}:{}", host, port);
}

}  // namespace

Endpoint parse_endpoint(const std::string& text) {
  const size_t colon = text.rfind(':');
  require(colon != std::string::npos && colon > 0 && colon + 1 < text.size(),
          "\"{}\" is not an address of the form host:port", text);
  const std::string port = text.substr(colon + 1);
  const bool is_number =
      port.size() <= 5 && port.find_first_not_of("0123456789") == std::string::npos;
  require(is_number && std::stoi(port) >= 1 && std::stoi(port) <= 65535,
          "\"{}\" has the port \"{}\"; a port is a number from 1 to 65535", text, port);
  std::string host = text.substr(0, colon);
  if (host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  return {host, port};
}

Socket& Socket::operator=(Socket&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

Socket::~Socket() {
  if (fd_ >= 0) ::close(fd_);
}

Socket Socket::listen_on(const std::string& host, const std::string& port) {
  const AddressList list = resolve(host, port, AI_PASSIVE);
  Socket s(::socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  if (s.fd_ >= 0) ::setsockopt(s.fd_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (s.fd_ < 0 || ::bind(s.fd_, list->ai_addr, list->ai_addrlen) != 0 ||
      ::listen(s.fd_, SOMAXCONN) != 0) {
    throw UserError(fmt::format("cannot listen on {}:{}: {}", host, port, std::strerror(errno)),
                    port == "0" ? ""
                                : "set launch.port to a port that no other program has and that "
                                  "you may use, or to 0: any free one");
  }
  return s;
}

Socket Socket::connect_to(const Endpoint& endpoint, int64_t deadline_ms) {
  const auto end = Clock::now() + std::chrono::milliseconds(deadline_ms);
  const AddressList list = resolve(endpoint.host, endpoint.port, 0);
  for (;;) {
    int why = 0;
    // A name may have several addresses: that of localhost which nobody listens on may come first.
    for (const addrinfo* at = list.get(); at != nullptr; at = at->ai_next) {
      Socket s(::socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
      why = s.fd_ < 0 ? errno : connect_within(s.fd_, *at, end);
      if (why != 0) continue;
      send_at_once(s.fd_);
      return s;
    }
    if (ms_left(end) <= 0) {
      throw PeerError(fmt::format("no answer from {}:{} within {:.1f} s: {}", endpoint.host,
                                  endpoint.port, static_cast<double>(deadline_ms) / 1000,
                                  std::strerror(why)));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

std::string Socket::local_endpoint() const {
  std::string text = endpoint_text(fd_, ::getsockname);
  ensure(!text.empty(), "a socket without an address");
  return text;
}

std::string Socket::peer_endpoint() const {
  std::string text = endpoint_text(fd_, ::getpeername);
  return text.empty() ? "a peer that is gone" : text;
}

Socket Socket::accept_one() const {
  Socket s(::accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (s.fd_ >= 0) send_at_once(s.fd_);
  return s;
}

void Socket::set_nonblocking() { ::fcntl(fd_, F_SETFL, ::fcntl(fd_, F_GETFL) | O_NONBLOCK); }

void Socket::shut_down() noexcept {
  if (fd_ >= 0) ::shutdown(fd_, SHUT_RDWR);
}

void Socket::send_all(const void* data, int64_t bytes) {
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t sent = ::send(fd_, at, static_cast<size_t>(bytes), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) throw PeerError(fmt::format("connection lost: {}", std::strerror(errno)));
    at += sent;
    bytes -= sent;
  }
}

bool Socket::recv_all(void* data, int64_t bytes, int64_t deadline_ms) {
  const auto end = Clock::now() + std::chrono::milliseconds(deadline_ms);
  char* at = static_cast<char*>(data);
  while (bytes > 0) {
    pollfd wanted{fd_, POLLIN, 0};
    const int64_t left = deadline_ms < 0 ? -1 : std::max<int64_t>(0, ms_left(end));
    const int ready = ::poll(&wanted, 1, static_cast<int>(left));
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0) {
      throw PeerError(
          fmt::format("no answer in {:.1f} s", static_cast<double>(deadline_ms) / 1000));
    }
    const ssize_t got = ::recv(fd_, at, static_cast<size_t>(bytes), 0);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got <= 0) return false;
    at += got;
    bytes -= got;
  }
  return true;
}

}  // namespace weft
