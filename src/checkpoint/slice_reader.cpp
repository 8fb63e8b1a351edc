// checkpoint/slice_reader.cpp: a megabyte at a time, hashed and handed on while it is in cache.
#include "checkpoint/slice_reader.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "base/hash_stream.h"
#include "checkpoint/damaged.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void throw_damaged(const std::string& tensor, const fs::path& path,
                                const StoredSlice& slice, size_t begin, size_t end) {
  throw DamagedCheckpoint(fmt::format(
      "tensor \"{}\" is damaged: bytes {} to {} of {} (box at {} of extent {}, elements {} to {}) "
      "have a wrong checksum",
      tensor, slice.begin + begin, slice.begin + end, path.string(), to_string(slice.region.offset),
      to_string(slice.region.extent), slice.region.flat_begin, slice.region.flat_end));
}

size_t size_of(const StoredSlice& slice) { return slice.end - slice.begin; }

}  // namespace

SliceReader::SliceReader(fs::path folder, StoredHeaders headers)
    : folder_(std::move(folder)), headers_(std::move(headers)) {}

void SliceReader::add_pieces(const StoredSlice& slice, size_t begin, size_t end,
                             std::vector<ReadPiece>* pieces) {
  ReadPiece* last = pieces->empty() || pieces->back().slice != &slice ? nullptr : &pieces->back();
  if (slice.blocks.empty()) {
    if (!is_good(slice)) begin = 0, end = size_of(slice);
    if (!last) return pieces->push_back({&slice, begin, end});
    last->end = std::max(last->end, end);
    return;
  }
  begin = begin / kCheckedBlock * kCheckedBlock;
  end = std::min(size_of(slice), (end + kCheckedBlock - 1) / kCheckedBlock * kCheckedBlock);
  if (last) begin = std::max(begin, last->end);
  while (begin < end) {
    const size_t stop = std::min(end, begin / kMostPiece * kMostPiece + kMostPiece);
    if (last && last->end == begin && begin % kMostPiece != 0) {
      last->end = stop;
    } else {
      pieces->push_back({&slice, begin, stop});
    }
    last = &pieces->back();
    begin = stop;
  }
}

void SliceReader::read(const std::string& tensor, const ReadPiece& piece, const Take& take) {
  const StoredSlice& slice = *piece.slice;
  if (!images_.empty()) return read_image(piece, take);
  check_header(slice.file);
  if (!slice.blocks.empty()) return read_blocks(tensor, piece, take);
  if (is_good(slice)) {
    return read_range(
        folder_ / slice.file, slice.begin + piece.begin, slice.begin + piece.end,
        [&](const std::byte* data, size_t at, size_t size) { take(data, piece.begin + at, size); });
  }
  ensure(piece.begin == 0 && piece.end == size_of(slice), "a part cannot be checked alone");
  read_whole(tensor, slice, take);
}

void SliceReader::read_image(const ReadPiece& piece, const Take& take) {
  const Image& image = images_.at(piece.slice->file);
  const size_t first = piece.slice->begin, size = piece.end - piece.begin;
  bytes_read_ += static_cast<int64_t>(size);
  if (image.data != nullptr) return take(image.data + first + piece.begin, piece.begin, size);
  image.fetch(
      first + piece.begin, first + piece.end,
      [&](const std::byte* data, size_t begin, size_t count) { take(data, begin - first, count); });
}

void SliceReader::read_blocks(const std::string& tensor, const ReadPiece& piece, const Take& take) {
  const StoredSlice& slice = *piece.slice;
  const fs::path path = folder_ / slice.file;
  read_range(path, slice.begin + piece.begin, slice.begin + piece.end,
             [&](const std::byte* data, size_t at, size_t size) {
               const size_t begin = piece.begin + at;
               for (size_t done = 0; done < size; done += kCheckedBlock) {
                 const size_t n = std::min(kCheckedBlock, size - done);
                 if (hash_bytes(data + done, n) == slice.blocks[(begin + done) / kCheckedBlock])
                   continue;
                 throw_damaged(tensor, path, slice, begin + done, begin + done + n);
               }
               take(data, begin, size);
             });
}

void SliceReader::read_whole(const std::string& tensor, const StoredSlice& slice,
                             const Take& take) {
  const fs::path path = folder_ / slice.file;
  HashStream hash;
  read_range(path, slice.begin, slice.end, [&](const std::byte* data, size_t at, size_t size) {
    hash.add(data, size);
    take(data, at, size);
  });
  if (hash.value() != slice.checksum) throw_damaged(tensor, path, slice, 0, size_of(slice));
  // A small one is checked each time: that costs no more than remembering it.
  if (size_of(slice) <= kCheckedBlock) return;
  const std::lock_guard lock(mutex_);
  good_.insert(&slice);
}

// A file is opened for each piece: with thousands of ranks there are more files than a process may
// have open.
void SliceReader::read_range(const fs::path& path, size_t begin, size_t end, const Take& take) {
  const DirectReader file = reading_checkpoint([&] { return DirectReader(path); });
  std::unique_ptr<ReadBuffer> buffer = take_buffer();
  for (size_t at = begin; at < end; at += kRead) {
    const size_t size = std::min(kRead, end - at);
    const std::byte* data = reading_checkpoint([&] { return file.read(at, size, *buffer); });
    bytes_read_ += static_cast<int64_t>(size);
    take(data, at - begin, size);
  }
  return_buffer(std::move(buffer));
}

std::unique_ptr<ReadBuffer> SliceReader::take_buffer() {
  {
    const std::lock_guard lock(mutex_);
    if (!buffers_.empty()) {
      std::unique_ptr<ReadBuffer> buffer = std::move(buffers_.back());
      buffers_.pop_back();
      return buffer;
    }
  }
  return std::make_unique<ReadBuffer>(kRead);
}

void SliceReader::return_buffer(std::unique_ptr<ReadBuffer> buffer) {
  const std::lock_guard lock(mutex_);
  buffers_.push_back(std::move(buffer));
}

void SliceReader::check_headers() {
  for (const auto& [file, header] : headers_) check_header(file);
}

// We find slices by the index; programs that read the file without it trust its header.
void SliceReader::check_header(const std::string& file) {
  const auto header = headers_.find(file);
  if (header == headers_.end()) return;
  {
    const std::lock_guard lock(mutex_);
    if (good_headers_.contains(file)) return;
  }
  HashStream hash;
  read_range(folder_ / file, 0, header->second.bytes,
             [&](const std::byte* data, size_t, size_t size) { hash.add(data, size); });
  if (hash.value() != header->second.checksum) {
    throw DamagedCheckpoint(fmt::format("{} is damaged: its header is not the one that was written",
                                        (folder_ / file).string()));
  }
  const std::lock_guard lock(mutex_);
  good_headers_.insert(file);
}

bool SliceReader::is_good(const StoredSlice& slice) {
  if (!images_.empty()) return true;
  const std::lock_guard lock(mutex_);
  return good_.contains(&slice);
}

}  // namespace weft
