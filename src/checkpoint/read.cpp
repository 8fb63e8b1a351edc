// checkpoint/read.cpp: any slice out of whichever files hold it.
#include <cstring>
#include <mutex>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/index.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
constexpr const char* kUseOlder = "use the checkpoint before it, or copy this one again";
constexpr const char* kAsItWas =
    "it is of another model, or train.precision, train.master_weights or model.freeze were others: "
    "set them as they were, or export it (weft export) and begin a new run with model.path there";

// COMMITTED lists the hashes of index.json and state.json, so that a flipped bit there is found.
// One without content (made by hand) vouches for nothing but wholeness.
void check_committed(const fs::path& folder, const std::string& file, const std::string& bytes) {
  const std::string committed = read_file(folder / kCommittedFile, 1 << 16);
  const size_t at = committed.find(file + " ");
  if (at == std::string::npos) return;
  if (committed.compare(at + file.size() + 1, 16, hash_hex(hash_text(bytes))) != 0) {
    throw UserError(fmt::format("{} is damaged: its bytes are not those that were written",
                                (folder / file).string()),
                    kUseOlder);
  }
}

Json read_json(const fs::path& folder, const char* file) {
  const std::string bytes = read_file(folder / file);
  check_committed(folder, file, bytes);
  return parse_json(bytes, (folder / file).string());
}

// Every slice lies within its file: found at once, before anything is read.
void check_sizes(const fs::path& folder, const StoredTensors& tensors) {
  std::map<std::string, size_t> sizes;
  for (const auto& [name, tensor] : tensors) {
    for (const StoredSlice& slice : tensor.slices) {
      const auto [found, fresh] = sizes.try_emplace(slice.file, 0);
      const fs::path path = folder / slice.file;
      std::error_code fault;
      if (fresh) found->second = fs::file_size(path, fault);
      if (fault) {
        throw UserError(fmt::format("cannot read {}, which holds a part of tensor \"{}\": {}",
                                    path.string(), name, fault.message()),
                        kUseOlder);
      }
      if (slice.end > found->second) {
        throw UserError(fmt::format("{} holds {} bytes, but tensor \"{}\" lies at bytes {} to {}",
                                    path.string(), found->second, name, slice.begin, slice.end),
                        kUseOlder);
      }
    }
  }
}

}  // namespace

// Mapped files and the slices whose checksum was found good; shared by threads that read.
class CheckpointReader::Files {
 public:
  explicit Files(fs::path folder) : folder_(std::move(folder)) {}

  const std::byte* bytes_of(const std::string& tensor, const StoredSlice& slice) {
    const std::byte* at = mapped(slice).data() + slice.begin;
    if (is_good(slice)) return at;
    if (hash_bytes(at, slice.end - slice.begin) != slice.checksum) {
      throw UserError(
          fmt::format("tensor \"{}\" is damaged: bytes {} to {} of {} (box at {} of extent {}, "
                      "elements {} to {}) have another checksum",
                      tensor, slice.begin, slice.end, (folder_ / slice.file).string(),
                      to_string(slice.region.offset), to_string(slice.region.extent),
                      slice.region.flat_begin, slice.region.flat_end),
          kUseOlder);
    }
    const std::lock_guard lock(mutex_);
    good_.insert(&slice);
    return at;
  }

 private:
  const MappedFile& mapped(const StoredSlice& slice) {
    const std::lock_guard lock(mutex_);
    auto found = maps_.find(slice.file);
    if (found == maps_.end()) {
      found = maps_.emplace(slice.file, MappedFile(folder_ / slice.file)).first;
    }
    return found->second;
  }

  bool is_good(const StoredSlice& slice) {
    const std::lock_guard lock(mutex_);
    return good_.contains(&slice);
  }

  fs::path folder_;
  std::mutex mutex_;
  std::map<std::string, MappedFile> maps_;
  std::set<const StoredSlice*> good_;
};

CheckpointReader::CheckpointReader(const fs::path& folder)
    : folder_(folder), files_(std::make_unique<Files>(folder)) {
  if (!is_checkpoint(folder)) {
    throw UserError(fmt::format("{} is no whole checkpoint: it has no COMMITTED", folder.string()),
                    "writing it was cut short, or it is another folder; use the one before it");
  }
  index_ = read_json(folder, kIndexFile);
  state_ = read_json(folder, kStateFile);
  const std::string what = (folder / kIndexFile).string();
  tensors_ = std::make_unique<StoredTensors>(index_from_json(index_, what));
  check_sizes(folder, *tensors_);
  const std::string fault = coverage_fault(*tensors_);
  require(fault.empty(), "{}: {}", what, fault);
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
    const std::byte* bytes = nullptr;  // checked only where something is taken from it
    for_each_common_run(part.region, wanted, [&](int64_t from, int64_t to, int64_t count) {
      if (!bytes) bytes = files_->bytes_of(slice.name, part);
      std::memcpy(out + to * width, bytes + from * width, static_cast<size_t>(count * width));
    });
  }
}

void CheckpointReader::verify() const {
  for (const auto& [name, tensor] : *tensors_) {
    for (const StoredSlice& slice : tensor.slices) files_->bytes_of(name, slice);
  }
}

}  // namespace weft
