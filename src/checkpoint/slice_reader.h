// checkpoint/slice_reader.h: bytes of stored slices from the files of a checkpoint, all checked.
//
// What was read is compared with its checksum before, or at the latest when, the caller has it all.
// A slice with checksums of its blocks is read in whole blocks; one without is read whole once,
// and then in any part.
#pragma once

#include <atomic>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "base/direct_reader.h"
#include "checkpoint/index.h"

namespace weft {

// Bytes [begin, end) of a slice, which can be checked without the rest of it.
struct ReadPiece {
  const StoredSlice* slice;
  size_t begin, end;
};

class SliceReader {
 public:
  SliceReader(std::filesystem::path folder, StoredHeaders headers);
  // The files are in memory, by name, and need no check: here (data), or in that of another
  // process, which `fetch` reads (bytes [begin, end) of the file, in order; from several threads).
  using Take = std::function<void(const std::byte* data, size_t begin, size_t size)>;
  struct Image {
    const std::byte* data = nullptr;
    std::function<void(size_t begin, size_t end, const Take& take)> fetch = nullptr;
  };
  using Images = std::map<std::string, Image>;
  explicit SliceReader(Images images) : images_(std::move(images)) {}

  // Adds the pieces that hold these bytes of a slice; calls for one slice follow each other, in
  // order. No byte is in two pieces, and none is longer than a few reads where it has blocks.
  void add_pieces(const StoredSlice& slice, size_t begin, size_t end,
                  std::vector<ReadPiece>* pieces);
  // All of a slice.
  void add_pieces(const StoredSlice& slice, std::vector<ReadPiece>* pieces) {
    add_pieces(slice, 0, slice.end - slice.begin, pieces);
  }

  // Also checks the file's header, once. take(data, begin, size): bytes [begin, begin + size) of
  // the slice, in order. DamagedCheckpoint naming tensor, file and slice where the checksum is
  // wrong; RunError where the system cannot read the file. Thread-safe.
  void read(const std::string& tensor, const ReadPiece& piece, const Take& take);

  void check_headers();  // also of files without a slice
  int64_t bytes_read() const { return bytes_read_; }

 private:
  static constexpr size_t kRead = size_t{1} << 20;  // bytes at a time
  static constexpr size_t kMostPiece = 4 * kRead;

  void read_image(const ReadPiece& piece, const Take& take);
  void read_range(const std::filesystem::path& path, size_t begin, size_t end, const Take& take);
  void read_blocks(const std::string& tensor, const ReadPiece& piece, const Take& take);
  void read_whole(const std::string& tensor, const StoredSlice& slice, const Take& take);
  void check_header(const std::string& file);
  bool is_good(const StoredSlice& slice);
  std::unique_ptr<ReadBuffer> take_buffer();
  void return_buffer(std::unique_ptr<ReadBuffer> buffer);

  const std::filesystem::path folder_;
  const StoredHeaders headers_;
  const Images images_;
  std::atomic<int64_t> bytes_read_ = 0;
  std::mutex mutex_;
  std::vector<std::unique_ptr<ReadBuffer>> buffers_;  // those not in use
  std::set<const StoredSlice*> good_;                 // without blocks, and checked
  std::set<std::string> good_headers_;                // by file
};

}  // namespace weft
