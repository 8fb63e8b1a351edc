// net/socket.h: a TCP connection, with a deadline for everything that waits.
#pragma once

#include <cstdint>
#include <string>

namespace weft {

// "127.0.0.1:4711", "[::1]:4711", "node7:4711"
struct Endpoint {
  std::string host;
  std::string port;
};
Endpoint parse_endpoint(const std::string& text);

class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  Socket& operator=(Socket&& other) noexcept;
  ~Socket();

  // Listens on that address only; port 0: any free one.
  static Socket listen_on(const std::string& host, const std::string& port);
  // Retries until something listens there or the time is up.
  static Socket connect_to(const Endpoint& endpoint, int64_t deadline_ms);

  int fd() const { return fd_; }
  std::string local_endpoint() const;
  std::string peer_endpoint() const;
  [[nodiscard]] Socket accept_one() const;  // its fd is -1 where no connection is pending
  void set_nonblocking();
  void shut_down() noexcept;  // wakes whoever waits on it, in any thread

  // PeerError where the peer is gone.
  void send_all(const void* data, int64_t bytes);
  // Returns whether all bytes arrived: false where the connection was closed. deadline_ms < 0:
  // none.
  [[nodiscard]] bool recv_all(void* data, int64_t bytes, int64_t deadline_ms);

 private:
  int fd_ = -1;
};

}  // namespace weft
