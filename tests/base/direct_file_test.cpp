// tests/base/direct_file_test.cpp: files written in blocks, aligned or not, by several threads.
#include "base/direct_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <new>
#include <string>

#include "base/block_writer.h"
#include "base/error.h"
#include "base/file.h"
#include "tests/io/temporary_folder.h"
#include "tests/resource_limit.h"

namespace weft::testing {
namespace {

struct FreeAligned {
  void operator()(std::byte* p) const {
    ::operator delete[](p, std::align_val_t(DirectFile::kAlignment));
  }
};

// Bytes that differ everywhere, at an aligned address.
std::unique_ptr<std::byte[], FreeAligned> make_bytes(size_t size) {
  std::unique_ptr<std::byte[], FreeAligned> bytes(new (std::align_val_t(DirectFile::kAlignment))
                                                      std::byte[size]);
  uint32_t state = 1;
  for (size_t i = 0; i < size; ++i)
    bytes[i] = std::byte((state = state * 1664525 + 1013904223) >> 24);
  return bytes;
}

std::string text_of(const std::byte* bytes, size_t size) {
  return {reinterpret_cast<const char*>(bytes), size};
}

TEST(DirectFile, AnySizeAndAlignment) {
  const TemporaryFolder folder;
  for (const size_t size : {size_t{0}, size_t{1}, size_t{4095}, size_t{4096}, size_t{100001}}) {
    const auto bytes = make_bytes(size + 1);
    for (const size_t shift : {size_t{0}, size_t{1}}) {
      DirectFile file(folder / "f", size);
      const size_t half = size / 2 / DirectFile::kAlignment * DirectFile::kAlignment;
      file.write(half, bytes.get() + shift + half, size - half);
      file.write(0, bytes.get() + shift, half);
      file.sync();
      EXPECT_EQ(read_file(folder / "f"), text_of(bytes.get() + shift, size))
          << size << " " << shift;
    }
  }
}

// Whether the folder's file system takes a block past the cache, asked without DirectFile.
bool has_direct_writes(const TemporaryFolder& folder) {
  const int fd = ::open((folder / "probe").c_str(), O_WRONLY | O_CREAT | O_DIRECT, 0644);
  if (fd < 0) return false;
  const auto block = make_bytes(DirectFile::kAlignment);
  const ssize_t n = ::pwrite(fd, block.get(), DirectFile::kAlignment, 0);
  ::close(fd);
  return n == static_cast<ssize_t>(DirectFile::kAlignment);
}

TEST(DirectFile, WholeBlocksGoPastTheCache) {
  const TemporaryFolder folder;
  const size_t block = DirectFile::kAlignment, wanted = has_direct_writes(folder) ? block : 0;
  const auto bytes = make_bytes(10 * block);
  DirectFile file(folder / "f", 10 * block);
  file.write(0, bytes.get(), 3 * block + 5);  // the rest of five bytes through the cache
  EXPECT_EQ(file.direct_bytes(), 3 * wanted);
  file.write(4 * block, bytes.get() + 4 * block, 2 * block);
  EXPECT_EQ(file.direct_bytes(), 5 * wanted);
  file.write(6 * block, bytes.get() + 1, block);  // memory that is not aligned
  file.write(7 * block + 1, bytes.get(), block);  // an offset that is not
  EXPECT_EQ(file.direct_bytes(), 5 * wanted);
  EXPECT_EQ(read_file(folder / "f").substr(0, 3 * block + 5), text_of(bytes.get(), 3 * block + 5));
}

TEST(DirectFile, ALongerOldFileIsReplaced) {
  const TemporaryFolder folder;
  write_file_atomic(folder / "f", std::string(10000, 'x'));
  const auto bytes = make_bytes(10);
  DirectFile file(folder / "f", 10);
  file.write(0, bytes.get(), 10);
  EXPECT_EQ(read_file(folder / "f"), text_of(bytes.get(), 10));
}

TEST(DirectFile, AFullDiskAndAMissingFolderAreNamed) {
  const TemporaryFolder folder;
  const auto bytes = make_bytes(8192);
  const std::string full = error_of<RunError>([&] {
    const ResourceLimit limit(RLIMIT_FSIZE, 0);
    DirectFile file(folder / "f", 8192);
    file.write(0, bytes.get(), 8192);
  });
  EXPECT_NE(full.find((folder / "f").string()), std::string::npos) << full;
  EXPECT_NE(error_of<RunError>([] { DirectFile("/nowhere/f", 1); }).find("/nowhere/f"),
            std::string::npos);
}

TEST(BlockWriter, BlocksOfTheCallerAndBuffers) {
  const TemporaryFolder folder;
  const size_t size = 9 * BlockWriter::kBlock + 12345;
  const auto bytes = make_bytes(size);
  for (const bool uses_buffers : {false, true}) {
    DirectFile file(folder / "f", size);
    BlockWriter writer(&file);
    for (size_t at = 0; at < size; at += BlockWriter::kBlock) {
      const size_t count = std::min(BlockWriter::kBlock, size - at);
      const std::byte* data = bytes.get() + at;
      if (uses_buffers) {
        std::byte* buffer = writer.take_buffer();
        std::copy(data, data + count, buffer);
        data = buffer;
      }
      writer.write(at, data, count);
    }
    writer.finish();
    file.sync();
    EXPECT_TRUE(read_file(folder / "f") == text_of(bytes.get(), size)) << uses_buffers;
  }
}

// Also where more blocks follow than there are buffers: nobody waits for a block that fails.
TEST(BlockWriter, TheFirstErrorIsThrownAtTheEnd) {
  const TemporaryFolder folder;
  DirectFile file(folder / "f", 8192);
  const ResourceLimit limit(RLIMIT_FSIZE, 0);
  BlockWriter writer(&file);
  for (size_t i = 0; i < 12; ++i) writer.write(i * 4096, writer.take_buffer(), 4096);
  EXPECT_THROW(writer.finish(), RunError);
}

}  // namespace
}  // namespace weft::testing
