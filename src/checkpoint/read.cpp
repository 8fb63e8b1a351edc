// checkpoint/read.cpp: any slice from whichever files hold it.
#include <algorithm>
#include <cstring>
#include <sstream>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/new_threads.h"
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

// COMMITTED lists the hashes of index.json, state.json and the side files, so that a flipped bit
// there is detected.
std::map<std::string, std::string> read_committed(const fs::path& folder) {
  const fs::path file = folder / kCommittedFile;
  const std::string text = reading_checkpoint([&] { return read_file(file, 1 << 20); });
  std::map<std::string, std::string> hashes;
  std::istringstream lines(text);
  bool has_names = true;
  for (std::string line; std::getline(lines, line);) {
    const size_t blank = line.rfind(' ');
    has_names = has_names && blank != std::string::npos;
    if (has_names) hashes[line.substr(0, blank)] = line.substr(blank + 1);
  }
  const bool has_paths = std::any_of(hashes.begin(), hashes.end(), [](const auto& line) {
    return line.first.find('/') != std::string::npos;
  });
  const bool is_whole = text.ends_with('\n') && has_names && !has_paths &&
                        hashes.contains(kIndexFile) && hashes.contains(kStateFile);
  if (!is_whole) {
    throw DamagedCheckpoint(
        fmt::format("{} is damaged: it does not list its files", file.string()));
  }
  return hashes;
}

std::string read_checked(const fs::path& folder, const std::string& file,
                         const std::map<std::string, std::string>& hashes) {
  const fs::path path = folder / file;
  if (reading_checkpoint([&] { return path_kind(path); }) == PathKind::kNothing) {
    throw DamagedCheckpoint(fmt::format("{}, which COMMITTED lists, is missing", path.string()));
  }
  std::string bytes = reading_checkpoint([&] { return read_file(path); });
  const auto wanted = hashes.find(file);
  if (wanted != hashes.end() && wanted->second != hash_hex(hash_text(bytes))) {
    throw DamagedCheckpoint(
        fmt::format("{} is damaged: its bytes are not those that were written (their hash is {}, "
                    "COMMITTED has {})",
                    path.string(), hash_hex(hash_text(bytes)), wanted->second));
  }
  return bytes;
}

Json read_json(const fs::path& folder, const char* file,
               const std::map<std::string, std::string>& hashes) {
  const std::string bytes = read_checked(folder, file, hashes);
  return reading_checkpoint([&] { return parse_json(bytes, (folder / file).string()); });
}

size_t size_of(const fs::path& path, const std::string& what) {
  std::error_code fault;
  const size_t size = fs::file_size(path, fault);
  if (!fault) return size;
  if (fault != std::errc::no_such_file_or_directory)
    reading_checkpoint([&] { throw_refused("access", path, fault.value()); });
  throw DamagedCheckpoint(fmt::format("{}, which holds {}, is missing", path.string(), what));
}

// Every slice and header is within its file: checked up front, before anything is read.
void check_sizes(const fs::path& folder, const StoredTensors& tensors,
                 const StoredHeaders& headers) {
  struct Extent {
    size_t size = 0, used = 0;
  };
  std::map<std::string, Extent> files;
  for (const auto& [name, tensor] : tensors) {
    for (const StoredSlice& slice : tensor.slices) {
      const auto [found, fresh] = files.try_emplace(slice.file);
      Extent& file = found->second;
      const fs::path path = folder / slice.file;
      if (fresh) file.size = size_of(path, fmt::format("a part of tensor \"{}\"", name));
      file.used = std::max(file.used, slice.end);
      if (slice.end <= file.size) continue;
      throw DamagedCheckpoint(
          fmt::format("{} holds {} bytes, but tensor \"{}\" is at bytes {} to {}", path.string(),
                      file.size, name, slice.begin, slice.end));
    }
  }
  for (const auto& [name, header] : headers) {
    const auto [found, fresh] = files.try_emplace(name);
    Extent& file = found->second;
    if (fresh) file.size = size_of(folder / name, "no slice");
    if (header.bytes > file.size) {
      throw DamagedCheckpoint(fmt::format("{} holds {} bytes, but its header has {}",
                                          (folder / name).string(), file.size, header.bytes));
    }
    if (std::max(file.used, header.bytes) == file.size) continue;
    throw DamagedCheckpoint(fmt::format("{} holds {} bytes, but {} were written",
                                        (folder / name).string(), file.size,
                                        std::max(file.used, header.bytes)));
  }
}

}  // namespace

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
  tensors_ = std::make_unique<StoredTensors>(
      reading_checkpoint([&] { return index_from_json(index_, what); }));
  StoredHeaders headers = reading_checkpoint([&] { return headers_from_json(index_, what); });
  check_sizes(folder, *tensors_, headers);
  files_ = std::make_unique<SliceReader>(folder, std::move(headers));
  const std::string fault = coverage_fault(*tensors_);
  if (!fault.empty()) throw DamagedCheckpoint(fmt::format("{}: {}", what, fault));
}

CheckpointReader::CheckpointReader(const std::string& name, StoredTensors tensors, Json state,
                                   SliceReader::Images files)
    : folder_(name),
      state_(std::move(state)),
      tensors_(std::make_unique<StoredTensors>(std::move(tensors))),
      files_(std::make_unique<SliceReader>(std::move(files))) {}

CheckpointReader::CheckpointReader(CheckpointReader&&) noexcept = default;
CheckpointReader::~CheckpointReader() = default;

bool CheckpointReader::has(const std::string& name) const { return tensors_->contains(name); }

const StoredTensor& CheckpointReader::find(const Slice& slice) const {
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
  const std::string fault = region_fault(region_of(slice), slice.shape);
  ensure(fault.empty(), fmt::format("slice of \"{}\": {}", slice.name, fault));
  return stored;
}

std::vector<ReadPiece> CheckpointReader::pieces_of(const Slice& slice) const {
  const Region wanted = region_of(slice);
  const auto width = static_cast<size_t>(dtype_bytes(slice.dtype));
  std::vector<ReadPiece> pieces;
  for (const StoredSlice& part : find(slice).slices) {
    for_each_common_run(part.region, wanted, [&](int64_t from, int64_t, int64_t count) {
      const size_t begin = static_cast<size_t>(from) * width;
      files_->add_pieces(part, begin, begin + static_cast<size_t>(count) * width, &pieces);
    });
  }
  return pieces;
}

void CheckpointReader::read(const Slice& slice, const ReadPiece& piece) const {
  const Region wanted = region_of(slice);
  const auto width = dtype_bytes(slice.dtype);
  auto* out = static_cast<std::byte*>(slice.data);
  files_->read(slice.name, piece, [&](const std::byte* data, size_t begin, size_t size) {
    Region there = piece.slice->region;
    there.flat_begin += static_cast<int64_t>(begin) / width;
    there.flat_end = there.flat_begin + static_cast<int64_t>(size) / width;
    for_each_common_run(there, wanted, [&](int64_t from, int64_t to, int64_t count) {
      std::memcpy(out + to * width, data + from * width, static_cast<size_t>(count * width));
    });
  });
}

void CheckpointReader::read(const Slice& slice) const {
  for (const ReadPiece& piece : pieces_of(slice)) read(slice, piece);
}

void CheckpointReader::check_structure() const {
  files_->check_headers();
  for (const auto& [file, hash] : committed_)
    static_cast<void>(read_checked(folder_, file, committed_));
}

void CheckpointReader::verify() const {
  check_structure();
  std::vector<std::pair<const std::string*, ReadPiece>> pieces;
  for (const auto& [name, tensor] : *tensors_) {
    std::vector<ReadPiece> some;
    for (const StoredSlice& slice : tensor.slices) files_->add_pieces(slice, &some);
    for (const ReadPiece& piece : some) pieces.emplace_back(&name, piece);
  }
  run_on_new_threads(kReadThreads, pieces.size(), [&](size_t i) {
    files_->read(*pieces[i].first, pieces[i].second, [](const std::byte*, size_t, size_t) {});
  });
}

int64_t CheckpointReader::bytes_read() const { return files_->bytes_read(); }

}  // namespace weft
