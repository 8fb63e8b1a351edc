// launch/rendezvous_file.cpp: written under another name, then renamed.
#include "launch/rendezvous_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/json.h"

namespace weft {
namespace fs = std::filesystem;
namespace {

constexpr size_t kMaxBytes = 16 << 10;

struct OpenFile {
  int fd;
  ~OpenFile() {
    if (fd >= 0) ::close(fd);
  }
};

[[noreturn]] void refuse_write(const fs::path& path, int why) {
  throw UserError(fmt::format("the file through which ranks find each other, {}, cannot be "
                              "written: {}",
                              path.string(), std::strerror(why)),
                  "the run directory needs a folder that all nodes share and may write");
}

void check_owner(int fd, const fs::path& path) {
  struct stat is {};
  const bool is_ours = ::fstat(fd, &is) == 0 && S_ISREG(is.st_mode) && is.st_uid == ::geteuid() &&
                       (is.st_mode & 077) == 0;
  if (is_ours) return;
  throw UserError(
      fmt::format("{} belongs to another user, or others may read it: it holds the run's secret",
                  path.string()),
      "remove it, and start the run again");
}

std::string read_all(int fd) {
  std::string text(kMaxBytes, '\0');
  const ssize_t got = ::pread(fd, text.data(), text.size(), 0);
  text.resize(got > 0 ? static_cast<size_t>(got) : 0);
  return text;
}

}  // namespace

fs::path rendezvous_path(const fs::path& run_dir) {
  fs::path dir = fs::absolute(run_dir).lexically_normal();
  if (!dir.has_filename()) dir = dir.parent_path();  // "runs/first/"
  return dir.parent_path() / ("." + dir.filename().string() + ".rendezvous");
}

void write_rendezvous(const fs::path& path, const RendezvousFile& file) {
  std::error_code fault;
  fs::create_directories(path.parent_path(), fault);
  const fs::path fresh = fmt::format("{}.{}", path.string(), ::getpid());
  Json json;
  json.set("launch", file.launch);
  json.set("endpoint", file.endpoint);
  json.set("secret", file.secret);
  const std::string text = json.dump() + "\n";
  ::unlink(fresh.c_str());  // of an earlier process with our number
  const OpenFile out{
      ::open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600)};
  if (out.fd < 0) refuse_write(fresh, errno);
  const ssize_t written = ::write(out.fd, text.data(), text.size());
  const bool is_whole = written == static_cast<ssize_t>(text.size()) && ::fsync(out.fd) == 0;
  if (is_whole && ::rename(fresh.c_str(), path.c_str()) == 0) return;
  const int why = is_whole || written < 0 ? errno : ENOSPC;
  ::unlink(fresh.c_str());
  refuse_write(path, why);
}

std::optional<RendezvousFile> read_rendezvous(const fs::path& path) {
  const OpenFile in{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW)};
  if (in.fd < 0) return std::nullopt;
  check_owner(in.fd, path);
  try {
    const Json json = parse_json(read_all(in.fd), "rendezvous");
    return RendezvousFile{json.at("launch").as_string(), json.at("endpoint").as_string(),
                          json.at("secret").as_string()};
  } catch (const UserError&) {
    return std::nullopt;  // a network file system may show the beginning first
  }
}

void remove_rendezvous(const fs::path& path, const RendezvousFile& file) noexcept {
  try {
    const auto now = read_rendezvous(path);
    if (now && now->secret == file.secret) ::unlink(path.c_str());
  } catch (const std::exception&) {
    return;  // another user's, or unreadable: not ours
  }
}

}  // namespace weft
