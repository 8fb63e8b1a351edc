// io/zip_writer.h: a zip archive of stored members, written in order as torch.save does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/file.h"

namespace weft {

// Every member begins at a multiple of 64 bytes from the archive's start; its checksum follows it,
// so that nothing is written twice and no member need be in memory. Sizes are in zip64's fields.
class ZipWriter {
 public:
  static constexpr size_t kAlignment = 64;

  // The archive begins where the file ends now; `out` must outlive it.
  explicit ZipWriter(FileWriter* out) : out_(out) {}
  // A member of `bytes` bytes, which the calls of write() that follow provide.
  void begin(std::string name, uint64_t bytes);
  void write(const void* bytes, size_t size);
  void add(std::string name, std::string_view bytes) {
    begin(std::move(name), bytes.size());
    write(bytes.data(), bytes.size());
  }
  uint64_t finish();  // the directory; returns the bytes of the archive

 private:
  struct Member {
    std::string name;
    uint64_t header, bytes;
    uint32_t checksum;
  };
  void put(const std::string& bytes);
  void end_member();
  std::string directory_entry(const Member& member) const;

  FileWriter* out_;
  uint64_t at_ = 0;       // bytes of the archive so far
  uint64_t missing_ = 0;  // bytes of the last member
  std::vector<Member> members_;
};

}  // namespace weft
