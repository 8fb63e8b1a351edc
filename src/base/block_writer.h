// base/block_writer.h: writes blocks of a file on threads of its own while the caller prepares
// more.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

#include "base/direct_file.h"

namespace weft {

class BlockWriter {
 public:
  static constexpr size_t kBlock = size_t{1} << 20;

  explicit BlockWriter(DirectFile* file);
  ~BlockWriter();  // what is still queued is dropped
  BlockWriter(const BlockWriter&) = delete;
  BlockWriter& operator=(const BlockWriter&) = delete;

  // A buffer of kBlock aligned bytes, to be passed to write(); waits until one is free. At most
  // kBuffers exist, and none where only the caller's own memory is written.
  std::byte* take_buffer();
  // Queued, or done at once where the system gives no thread. `data` is such a buffer, or memory
  // that does not change until finish().
  void write(size_t offset, const std::byte* data, size_t size);
  void finish();  // until all is written; throws the first error

 private:
  static constexpr size_t kThreads = 2, kBuffers = 4;
  struct Block {
    size_t offset;
    const std::byte* data;
    size_t size;
  };
  struct Free {
    void operator()(std::byte* p) const {
      ::operator delete[](p, std::align_val_t(DirectFile::kAlignment));
    }
  };
  void work();
  void write_next(std::unique_lock<std::mutex>& lock);
  bool is_buffer(const std::byte* data) const;

  DirectFile* file_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Block> queue_;
  std::vector<std::unique_ptr<std::byte[], Free>> buffers_;
  std::vector<std::byte*> free_;
  size_t num_writing_ = 0;
  bool is_ending_ = false;
  std::exception_ptr error_;
  std::vector<std::thread> threads_;
};

}  // namespace weft
