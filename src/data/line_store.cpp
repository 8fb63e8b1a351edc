// data/line_store.cpp: one file of marks with a checksum, written by the lock owner.
#include "data/line_store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/path.h"
#include "base/stop.h"
#include "data/cache_store.h"
#include "data/file_samples.h"

namespace weft {
namespace {

constexpr uint64_t kLinesMagic = 0x3153454E494C4657;  // "WFLINES1"
constexpr auto kLinesPoll = std::chrono::milliseconds(2);

struct LinesHeader {
  uint64_t magic, key, num_lines, num_blank, open_quote, num_marks;
};

class LineStore {
 public:
  LineStore(std::filesystem::path folder, uint64_t key)
      : folder_(std::move(folder)), key_(key), used_(open_cache_folder(folder_)) {
    lock_ = open_plain_file(folder_ / "lock", O_RDWR | O_CREAT, 0644);
  }
  ~LineStore() {
    for (const int fd : {used_, lock_}) {
      if (fd >= 0) ::close(fd);
    }
  }
  LineStore(const LineStore&) = delete;
  LineStore& operator=(const LineStore&) = delete;

  std::optional<LineMarks> read() const {
    if (path_kind(folder_ / "index") != PathKind::kFile) return std::nullopt;
    const std::string bytes = read_file(folder_ / "index");
    LinesHeader header{};
    uint64_t checksum = 0;
    if (bytes.size() < sizeof header + sizeof checksum) return std::nullopt;
    std::memcpy(&header, bytes.data(), sizeof header);
    const size_t end = bytes.size() - sizeof checksum;
    std::memcpy(&checksum, bytes.data() + end, sizeof checksum);
    const bool is_ours = header.magic == kLinesMagic && header.key == key_ &&
                         end - sizeof header == header.num_marks * sizeof(LineMarks::Mark) &&
                         checksum == hash_bytes(bytes.data(), end, key_);
    if (!is_ours) return std::nullopt;
    LineMarks found{{},
                    static_cast<int64_t>(header.num_lines),
                    static_cast<int64_t>(header.num_blank),
                    header.open_quote};
    found.marks.resize(header.num_marks);
    if (header.num_marks > 0)
      std::memcpy(found.marks.data(), bytes.data() + sizeof header, end - sizeof header);
    return found;
  }

  // EWOULDBLOCK: another process holds the lock.
  int try_lock() const {
    if (lock_ < 0) return EBADF;
    return ::flock(lock_, LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
  }

  void write(const LineMarks& found, const FileInfo& file) const {
    const LinesHeader header{kLinesMagic,
                             key_,
                             static_cast<uint64_t>(found.num_lines),
                             static_cast<uint64_t>(found.num_blank),
                             found.open_quote,
                             found.marks.size()};
    std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
    bytes.append(reinterpret_cast<const char*>(found.marks.data()),
                 found.marks.size() * sizeof(LineMarks::Mark));
    const uint64_t checksum = hash_text(bytes, key_);
    bytes.append(reinterpret_cast<const char*>(&checksum), sizeof checksum);
    Json about;
    about.set("files", file.path + " (where its lines begin)");
    about.set("rows", found.num_lines);
    write_file_atomic(folder_ / kCacheAbout, about.dump() + "\n");
    FileWriter(folder_ / "tokens", FileWriter::Mode::kAppend).write("");
    write_file_atomic(folder_ / "index", bytes);
  }

 private:
  std::filesystem::path folder_;
  uint64_t key_;
  int used_, lock_ = -1;
};

// Returns the stored marks, or null. With null, this process stores the marks if it got the lock.
std::optional<LineMarks> wait_for_marks(const LineStore& store, bool* is_locked) {
  while (true) {
    const int reason = store.try_lock();
    *is_locked = reason == 0;
    if (auto found = store.read()) return found;
    if (reason != EWOULDBLOCK && reason != EINTR) return std::nullopt;
    throw_if_stopped();
    std::this_thread::sleep_for(kLinesPoll);
  }
}

}  // namespace

LineMarks marks_of_file(const FileInfo& file, RowFormat format,
                        const std::function<LineMarks()>& scan, int64_t least_bytes) {
  if (file.size < least_bytes) return scan();
  const uint64_t key =
      hash_text(fmt::format("weft lines 1\n{}\n{}\n", format_name(format), identity_of(file)));
  std::unique_ptr<LineStore> store;
  bool is_locked = false;
  try {
    store = std::make_unique<LineStore>(cache_root() / hash_hex(key), key);
    if (auto found = wait_for_marks(*store, &is_locked)) return std::move(*found);
  } catch (const RunError&) {  // without the folder, every process scans the text
  } catch (const UserError&) {
  }
  LineMarks found = scan();
  if (!is_locked || identity_of(file_info(file.path)) != identity_of(file)) return found;
  try {
    store->write(found, file);
  } catch (const RunError&) {
  }
  return found;
}

}  // namespace weft
