// checkpoint/read.cpp: any slice from whichever files hold it.
#include <algorithm>
#include <cstring>
#include <limits>
#include <mutex>
#include <set>
#include <sstream>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/hash_stream.h"
#include "base/mapped_files.h"
#include "base/path.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/damaged.h"
#include "checkpoint/index.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
constexpr const char* kAsItWas =
    "it belongs to another model, or train.precision, train.master_weights or model.freeze "
    "differed: set them as they were, or export it (weft export) and start a new run with "
    "model.path there";

// Two ways to fail: the content is wrong, or the system could not read it.
template <typename Fn>
auto reading(const Fn& fn) {
  try {
    return fn();
  } catch (const RunError& e) {
    throw RunError(fmt::format("{}; the checkpoint was not changed", e.what()), e.hint());
  } catch (const UserError& e) {
    throw DamagedCheckpoint(e.what());
  }
}

// COMMITTED lists the hashes of index.json, state.json and the side files, so that a flipped bit
// there is detected.
std::map<std::string, std::string> read_committed(const fs::path& folder) {
  const fs::path file = folder / kCommittedFile;
  const std::string text = reading([&] { return read_file(file, 1 << 20); });
  std::map<std::string, std::string> hashes;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const size_t blank = line.rfind(' ');
    if (blank != std::string::npos) hashes[line.substr(0, blank)] = line.substr(blank + 1);
  }
  const bool is_whole =
      text.ends_with('\n') && hashes.contains(kIndexFile) && hashes.contains(kStateFile);
  if (!is_whole) {
    throw DamagedCheckpoint(
        fmt::format("{} is damaged: it does not list its files", file.string()));
  }
  return hashes;
}

std::string read_checked(const fs::path& folder, const std::string& file,
                         const std::map<std::string, std::string>& hashes) {
  std::string bytes = reading([&] { return read_file(folder / file); });
  const auto wanted = hashes.find(file);
  if (wanted != hashes.end() && wanted->second != hash_hex(hash_text(bytes))) {
    throw DamagedCheckpoint(fmt::format("{} is damaged: its bytes are not those that were written",
                                        (folder / file).string()));
  }
  return bytes;
}

Json read_json(const fs::path& folder, const char* file,
               const std::map<std::string, std::string>& hashes) {
  const std::string bytes = read_checked(folder, file, hashes);
  return reading([&] { return parse_json(bytes, (folder / file).string()); });
}

size_t size_of(const fs::path& path, const std::string& what) {
  std::error_code fault;
  const size_t size = fs::file_size(path, fault);
  if (!fault) return size;
  if (fault != std::errc::no_such_file_or_directory)
    reading([&] { throw_refused("look at", path, fault.value()); });
  throw DamagedCheckpoint(fmt::format("{}, which holds {}, is missing", path.string(), what));
}

// A checkpoint is as large as the run that reads it: pages are dropped after hashing, and again
// after copying.
uint64_t hash_and_drop(const MappedFile& map, size_t begin, size_t end) {
  constexpr size_t kPiece = size_t{4} << 20;
  HashStream hash;
  for (size_t at = begin; at < end; at += kPiece) {
    const size_t stop = std::min(end, at + kPiece);
    hash.add(map.data() + at, stop - at);
    map.drop_pages(at, stop);
  }
  return hash.value();
}

// Every slice and header is within its file: checked up front, before anything is read.
void check_sizes(const fs::path& folder, const StoredTensors& tensors,
                 const StoredHeaders& headers) {
  std::map<std::string, size_t> sizes;
  for (const auto& [name, tensor] : tensors) {
    for (const StoredSlice& slice : tensor.slices) {
      const auto [found, fresh] = sizes.try_emplace(slice.file, 0);
      const fs::path path = folder / slice.file;
      if (fresh) found->second = size_of(path, fmt::format("a part of tensor \"{}\"", name));
      if (slice.end <= found->second) continue;
      throw DamagedCheckpoint(
          fmt::format("{} holds {} bytes, but tensor \"{}\" is at bytes {} to {}", path.string(),
                      found->second, name, slice.begin, slice.end));
    }
  }
  for (const auto& [file, header] : headers) {
    const size_t size = sizes.contains(file) ? sizes[file] : size_of(folder / file, "no slice");
    if (header.bytes <= size) continue;
    throw DamagedCheckpoint(fmt::format("{} holds {} bytes, but its header has {}",
                                        (folder / file).string(), size, header.bytes));
  }
}

}  // namespace

// Mapped files and the slices whose checksum was verified; shared by reading threads.
class CheckpointReader::Files {
 public:
  Files(fs::path folder, StoredHeaders headers)
      : folder_(std::move(folder)), headers_(std::move(headers)) {}

  const std::byte* bytes_of(const std::string& tensor, const StoredSlice& slice) {
    const MappedFile& map = mapped(slice);
    const std::byte* at = map.data() + slice.begin;
    if (is_good(slice)) return at;
    const uint64_t checksum = hash_and_drop(map, slice.begin, slice.end);
    check_read(map);  // zeros from unreadable pages are not damage
    if (checksum != slice.checksum) {
      throw DamagedCheckpoint(
          fmt::format("tensor \"{}\" is damaged: bytes {} to {} of {} (box at {} of extent {}, "
                      "elements {} to {}) have a wrong checksum",
                      tensor, slice.begin, slice.end, (folder_ / slice.file).string(),
                      to_string(slice.region.offset), to_string(slice.region.extent),
                      slice.region.flat_begin, slice.region.flat_end));
    }
    const std::lock_guard lock(mutex_);
    good_.insert(&slice);
    return at;
  }

  // Including files without a slice.
  void check_headers() {
    const std::lock_guard lock(mutex_);
    for (const auto& [file, header] : headers_) map_file(file);
  }

  // Bytes [begin, end) of the slice were read.
  void end_reading(const StoredSlice& slice, size_t begin, size_t end) {
    const MappedFile& map = mapped(slice);
    map.drop_pages(slice.begin + begin, slice.begin + end);
    check_read(map);
  }

 private:
  // RunError where pages of the file could not be read: what was read may be zeros.
  static void check_read(const MappedFile& map) {
    reading([&] { check_mapped_file(map.data()); });
  }

  const MappedFile& map_file(const std::string& file) {
    const auto found = maps_.find(file);
    if (found != maps_.end()) return found->second;
    MappedFile map = reading([&] { return MappedFile(folder_ / file); });
    check_header(file, map);
    return maps_.emplace(file, std::move(map)).first->second;
  }

  // We find slices by the index; programs that read the file without it trust its header.
  void check_header(const std::string& file, const MappedFile& map) const {
    const auto header = headers_.find(file);
    if (header == headers_.end()) return;
    require_bytes(file, map, header->second.bytes);
    const uint64_t checksum = hash_bytes(map.data(), header->second.bytes);
    check_read(map);
    if (checksum == header->second.checksum) return;
    throw DamagedCheckpoint(fmt::format("{} is damaged: its header is not the one that was written",
                                        (folder_ / file).string()));
  }

  const MappedFile& mapped(const StoredSlice& slice) {
    const std::lock_guard lock(mutex_);
    const MappedFile& map = map_file(slice.file);
    require_bytes(slice.file, map, slice.end);
    return map;
  }

  // check_sizes has checked its length.
  void require_bytes(const std::string& file, const MappedFile& map, size_t end) const {
    if (end <= map.size()) return;
    reading([&] {
      throw RunError(fmt::format("{} changed while it was in use: it has {} bytes, wanted {}",
                                 (folder_ / file).string(), map.size(), end),
                     "restore the file, then run the same command again");
    });
  }

  bool is_good(const StoredSlice& slice) {
    const std::lock_guard lock(mutex_);
    return good_.contains(&slice);
  }

  fs::path folder_;
  const StoredHeaders headers_;
  std::mutex mutex_;
  std::map<std::string, MappedFile> maps_;
  std::set<const StoredSlice*> good_;
};

CheckpointReader::CheckpointReader(const fs::path& folder) : folder_(folder) {
  if (!is_checkpoint(folder)) {
    throw UserError(
        fmt::format("{} is not a complete checkpoint: it has no COMMITTED", folder.string()),
        "writing it was interrupted, or it is another folder; use the previous one");
  }
  committed_ = read_committed(folder);
  index_ = read_json(folder, kIndexFile, committed_);
  state_ = read_json(folder, kStateFile, committed_);
  const std::string what = (folder / kIndexFile).string();
  check_index_format(index_, what);  // not damage: another weft wrote it
  tensors_ =
      std::make_unique<StoredTensors>(reading([&] { return index_from_json(index_, what); }));
  StoredHeaders headers = reading([&] { return headers_from_json(index_, what); });
  check_sizes(folder, *tensors_, headers);
  files_ = std::make_unique<Files>(folder, std::move(headers));
  const std::string fault = coverage_fault(*tensors_);
  if (!fault.empty()) throw DamagedCheckpoint(fmt::format("{}: {}", what, fault));
}

CheckpointReader::CheckpointReader(CheckpointReader&&) noexcept = default;
CheckpointReader::~CheckpointReader() = default;

bool CheckpointReader::has(const std::string& name) const { return tensors_->contains(name); }

void CheckpointReader::read(const Slice& slice) const {
  const auto found = tensors_->find(slice.name);
  if (found == tensors_->end()) {
    throw UserError(fmt::format("{} has no tensor \"{}\"", folder_.string(), slice.name), kAsItWas);
  }
  const StoredTensor& stored = found->second;
  if (stored.shape != slice.shape || stored.dtype != slice.dtype) {
    throw UserError(fmt::format("{}: tensor \"{}\" is {} {}, wanted {} {}", folder_.string(),
                                slice.name, to_string(stored.shape), dtype_name(stored.dtype),
                                to_string(slice.shape), dtype_name(slice.dtype)),
                    kAsItWas);
  }
  const Region wanted = region_of(slice);
  const std::string fault = region_fault(wanted, slice.shape);
  ensure(fault.empty(), fmt::format("slice of \"{}\": {}", slice.name, fault));
  const auto width = dtype_bytes(slice.dtype);
  auto* out = static_cast<std::byte*>(slice.data);
  for (const StoredSlice& part : stored.slices) {
    const std::byte* bytes = nullptr;  // checked only where something is read from it
    int64_t first = std::numeric_limits<int64_t>::max(), last = 0;
    for_each_common_run(part.region, wanted, [&](int64_t from, int64_t to, int64_t count) {
      if (!bytes) bytes = files_->bytes_of(slice.name, part);
      std::memcpy(out + to * width, bytes + from * width, static_cast<size_t>(count * width));
      first = std::min(first, from);
      last = std::max(last, from + count);
    });
    if (bytes)
      files_->end_reading(part, static_cast<size_t>(first * width),
                          static_cast<size_t>(last * width));
  }
}

void CheckpointReader::verify() const {
  for (const auto& [name, tensor] : *tensors_) {
    for (const StoredSlice& slice : tensor.slices) files_->bytes_of(name, slice);
  }
  files_->check_headers();
  for (const auto& [file, hash] : committed_)
    static_cast<void>(read_checked(folder_, file, committed_));
}

}  // namespace weft
