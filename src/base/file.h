// base/file.h: whole files, mapped files, and files that appear only when they are complete.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace weft {

// UserError naming the path where the file does not exist or exceeds max_bytes; RunError where the
// system cannot read it (base/path.h).
std::string read_file(const std::filesystem::path& path, size_t max_bytes = size_t{1} << 31);

// Written to a temporary file, synced, then renamed: a reader sees the old file or the new one.
// RunError (exit 1) with the system's reason where the disk is full.
void write_file_atomic(const std::filesystem::path& path, std::string_view bytes);

// A file mapped read-only. The bytes live as long as the object.
class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();
  const std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  // Releases the pages; they are read from the file again when next touched.
  void drop_pages() const;
  // The same for bytes [begin, end), rounded outward: page faults load pages in groups.
  void drop_pages(size_t begin, size_t end) const;
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_}; }

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// A file written in order; every failure is a RunError naming path and reason (disk full).
class FileWriter {
 public:
  enum class Mode { kTruncate, kAppend };
  FileWriter(const std::filesystem::path& path, Mode mode);
  FileWriter(FileWriter&& other) noexcept;
  ~FileWriter();  // closes without sync; errors there are lost, so call sync() first
  void write(const void* bytes, size_t size);
  void write(std::string_view text) { write(text.data(), text.size()); }
  void sync();

 private:
  std::filesystem::path path_;
  int fd_ = -1;
};

void sync_directory(const std::filesystem::path& path);

// RunError with errno's reason, and a hint where the disk is full.
[[noreturn]] void fail_write(const std::filesystem::path& path);

}  // namespace weft
