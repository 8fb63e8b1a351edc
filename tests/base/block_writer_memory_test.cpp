// tests/base/block_writer_memory_test.cpp: a block writer that gets no memory for its threads.
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>
#include <string>

#include "base/block_writer.h"
#include "base/file.h"
#include "tests/io/temporary_folder.h"

namespace {

// Of this thread: how many allocations succeed before all fail; negative: all succeed.
thread_local int allocations_left = -1;

}  // namespace

// Not inlined: g++ would see free() of what `new` has returned, and warn.
[[gnu::noinline]] void* operator new(size_t size) {
  if (allocations_left == 0) throw std::bad_alloc();
  if (allocations_left > 0) --allocations_left;
  void* memory = std::malloc(size > 0 ? size : 1);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
[[gnu::noinline]] void* operator new(size_t size, const std::nothrow_t&) noexcept {
  return std::malloc(size);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace weft::testing {
namespace {

// At every allocation of its construction: it fails as a whole, or works with fewer threads. The
// program must not end, as it would where a vector with a running thread is destroyed.
TEST(BlockWriter, NoMemoryForAThreadIsNoEnd) {
  const TemporaryFolder folder;
  int refused = 0, built = 0;
  for (int left = 0; left < 12; ++left) {
    SCOPED_TRACE(left);
    DirectFile file(folder / "f", 5);
    allocations_left = left;
    try {
      BlockWriter writer(&file);
      allocations_left = -1;
      writer.write(0, reinterpret_cast<const std::byte*>("hello"), 5);
      writer.finish();
      EXPECT_EQ(read_file(folder / "f"), "hello");
      ++built;
    } catch (const std::bad_alloc&) {
      allocations_left = -1;
      ++refused;
    }
  }
  EXPECT_GT(refused, 0);  // else nothing was made to fail
  EXPECT_GT(built, 0);
}

}  // namespace
}  // namespace weft::testing
