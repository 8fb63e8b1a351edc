// data/token_file.h: the two files of a token cache: an index that processes share, and the tokens.
//
// `index` is mapped by every process of the node: a header and one record per block, whose state is
// set last. `tokens` only grows; a block is read with pread, so that it does not stay in our
// resident memory. One process at a time holds `lock` and writes; all hold `used` (cache_store.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace weft {

class TokenFile {
 public:
  enum State : uint32_t { kAbsent = 0, kWhole = 1, kDamaged = 2 };
  struct Record {
    uint64_t offset, bytes, checksum;
    std::atomic<uint32_t> state;
    uint32_t num_rows;
  };

  // In `folder`, or in memory where it is empty. Never fails because another process has the files
  // open: try_lock() returns whether this process may write. RunError naming the path on a disk
  // error.
  TokenFile(std::filesystem::path folder, uint64_t key, int64_t num_blocks);
  ~TokenFile();
  TokenFile(const TokenFile&) = delete;
  TokenFile& operator=(const TokenFile&) = delete;

  // True once this process is the writer; the files then exist and are valid. An older or damaged
  // index is discarded.
  bool try_lock();
  bool is_writer() const { return is_writer_; }
  void unlock();  // by the writer when done: another process may then write
  // Whether the index can be read: some process has made it.
  bool is_open();
  bool was_reset() const { return was_reset_; }  // an existing index was unusable
  bool was_made() const { return was_made_; }    // this process made the index

  int64_t num_lost() const { return num_lost_; }  // blocks in the index, but not in the tokens

  State state(int64_t block) const;
  uint64_t block_bytes(int64_t block) const { return record(block).bytes; }
  void append(int64_t block, int64_t num_rows, std::string_view bytes);  // by the writer
  void mark_damaged(int64_t block);
  void clear(int64_t block);  // absent again, to be rebuilt
  // The bytes of a whole block; false where they do not match its checksum.
  bool read_block(int64_t block, std::string& out) const;
  // A part of them, unchecked.
  void read_part(int64_t block, uint64_t begin, size_t size, void* out) const;
  const std::filesystem::path& folder() const { return folder_; }

 private:
  struct Header {
    uint64_t magic, key, num_blocks, end;  // end: of the complete tokens
  };
  bool map_index();
  void make_index();
  bool grow_index() const;
  Header* map() const;
  void unmap_index(Header* header) const;
  Record& record(int64_t block) const;
  size_t index_bytes() const;

  std::filesystem::path folder_;
  uint64_t key_;
  int64_t num_blocks_;
  int used_ = -1, lock_ = -1, index_ = -1, tokens_ = -1;
  Header* header_ = nullptr;  // mapped, followed by the records
  std::atomic<uint64_t> end_{0};
  bool is_writer_ = false, was_reset_ = false, was_made_ = false;
  int64_t num_lost_ = 0;
};

}  // namespace weft
