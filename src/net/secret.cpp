// net/secret.cpp: getrandom, and a file that was never readable by others.
#include "net/secret.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "base/error.h"

namespace weft {
namespace {

constexpr size_t kMinBytes = 16, kMaxBytes = 4096;

struct OpenFile {
  int fd;
  ~OpenFile() {
    if (fd >= 0) ::close(fd);
  }
};

// Overwrites what a stack or heap buffer held of a secret.
struct Wipe {
  char* at;
  size_t bytes;
  ~Wipe() { ::explicit_bzero(at, bytes); }
};

[[noreturn]] void refuse(const std::filesystem::path& path, const std::string& why,
                         const std::string& hint) {
  throw UserError(fmt::format("the secret file {} {}", path.string(), why), hint);
}

void check_permissions(int fd, const std::filesystem::path& path) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) refuse(path, std::strerror(errno), "");
  if (!S_ISREG(info.st_mode)) refuse(path, "is not a regular file", "");
  if ((info.st_mode & 077) != 0) {
    refuse(
        path, fmt::format("has mode {:04o}: others may use it", info.st_mode & 07777),
        fmt::format("chmod 600 {}; where others have read it, make a new secret", path.string()));
  }
}

}  // namespace

Nonce random_nonce() {
  Nonce nonce;
  size_t filled = 0;
  while (filled < nonce.size()) {
    const ssize_t got = ::getrandom(nonce.data() + filled, nonce.size() - filled, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw RunError(fmt::format("no random numbers: {}", std::strerror(errno)));
    filled += static_cast<size_t>(got);
  }
  return nonce;
}

Secret::Secret(std::string_view text) : text_(text.begin(), text.end()) {}

Secret::~Secret() { ::explicit_bzero(text_.data(), text_.size()); }

Secret Secret::random() {
  Nonce bytes = random_nonce();
  std::array<char, 2 * sizeof(Nonce)> text;
  const Wipe wipe_bytes{reinterpret_cast<char*>(bytes.data()), bytes.size()};
  const Wipe wipe_text{text.data(), text.size()};
  for (size_t i = 0; i < bytes.size(); ++i) {
    text[2 * i] = "0123456789abcdef"[bytes[i] >> 4];
    text[2 * i + 1] = "0123456789abcdef"[bytes[i] & 15];
  }
  return Secret({text.data(), text.size()});
}

Secret Secret::from_text(std::string_view text, std::string_view source) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.remove_suffix(1);
  require(!text.empty(), "{} is empty: it must hold the run's secret", source);
  require(text.size() >= kMinBytes && text.size() <= kMaxBytes,
          "{} holds {}{} bytes: a secret has {} to {}", source,
          text.size() > kMaxBytes ? "at least " : "", text.size(), kMinBytes, kMaxBytes);
  return Secret(text);
}

Secret Secret::from_file(const std::filesystem::path& path) {
  // O_NONBLOCK: a pipe of that name must not stop us.
  const OpenFile file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.fd < 0) {
    refuse(path, fmt::format("cannot be read: {}", std::strerror(errno)),
           "the run that is joined has written it; copy it to this node, mode 600");
  }
  check_permissions(file.fd, path);
  std::array<char, kMaxBytes + 3> buffer;  // a line end more, and a byte that shows there is more
  const Wipe wipe{buffer.data(), buffer.size()};
  size_t filled = 0;
  while (filled < buffer.size()) {
    const ssize_t got = ::read(file.fd, buffer.data() + filled, buffer.size() - filled);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) refuse(path, fmt::format("cannot be read: {}", std::strerror(errno)), "");
    if (got == 0) break;
    filled += static_cast<size_t>(got);
  }
  return from_text({buffer.data(), filled}, fmt::format("the secret file {}", path.string()));
}

void Secret::write_new_file(const std::filesystem::path& path) const {
  const OpenFile file{
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600)};
  if (file.fd < 0) {
    const int why = errno;
    refuse(path, fmt::format("cannot be created: {}", std::strerror(why)),
           why == EEXIST ? "remove it where it is of an earlier run" : "");
  }
  // In one call, so that who polls for the file does not read half of it.
  std::vector<char> line;
  line.reserve(text_.size() + 1);
  line.assign(text_.begin(), text_.end());
  line.push_back('\n');
  const Wipe wipe{line.data(), line.size()};
  if (::write(file.fd, line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
    const std::string why = std::strerror(errno);
    ::unlink(path.c_str());
    throw RunError(fmt::format("the secret file {} cannot be written: {}", path.string(), why));
  }
}

Digest Secret::key() const { return hmac_sha256("weft secret 1", {text_.data(), text_.size()}); }

}  // namespace weft
