// base/block_writer.cpp: a queue of blocks and the threads that empty it.
#include "base/block_writer.h"

#include <algorithm>
#include <system_error>

namespace weft {

BlockWriter::BlockWriter(DirectFile* file) : file_(file) {
  threads_.reserve(kThreads);  // before a thread runs that nobody would join
  try {
    for (size_t i = 0; i < kThreads; ++i) threads_.emplace_back([this] { work(); });
  } catch (const std::system_error&) {  // a limit on threads: those that exist suffice
  } catch (const std::bad_alloc&) {     // no memory for one: the same
  }
}

BlockWriter::~BlockWriter() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
    queue_.clear();
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

std::byte* BlockWriter::take_buffer() {
  std::unique_lock lock(mutex_);
  if (free_.empty() && buffers_.size() < kBuffers) {
    buffers_.emplace_back(new (std::align_val_t(DirectFile::kAlignment)) std::byte[kBlock]);
    return buffers_.back().get();
  }
  changed_.wait(lock, [&] { return !free_.empty(); });
  std::byte* buffer = free_.back();
  free_.pop_back();
  return buffer;
}

void BlockWriter::write(size_t offset, const std::byte* data, size_t size) {
  std::unique_lock lock(mutex_);
  queue_.push_back({offset, data, size});
  if (threads_.empty()) return write_next(lock);
  lock.unlock();
  changed_.notify_all();
}

void BlockWriter::finish() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return queue_.empty() && num_writing_ == 0; });
  if (error_) std::rethrow_exception(error_);
}

bool BlockWriter::is_buffer(const std::byte* data) const {
  return std::any_of(buffers_.begin(), buffers_.end(),
                     [&](const auto& buffer) { return buffer.get() == data; });
}

void BlockWriter::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return is_ending_ || !queue_.empty(); });
    if (queue_.empty()) return;
    write_next(lock);
  }
}

// After the first error blocks are only taken out.
void BlockWriter::write_next(std::unique_lock<std::mutex>& lock) {
  const Block block = queue_.front();
  queue_.pop_front();
  if (!error_) {
    ++num_writing_;
    lock.unlock();
    std::exception_ptr error;
    try {
      file_->write(block.offset, block.data, block.size);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    --num_writing_;
    if (!error_) error_ = error;
  }
  if (is_buffer(block.data)) free_.push_back(const_cast<std::byte*>(block.data));
  changed_.notify_all();
}

}  // namespace weft
