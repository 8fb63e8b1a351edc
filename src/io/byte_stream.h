// io/byte_stream.h: bytes in order, from a file or from its decompressed content.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

namespace weft {

class ByteStream {
 public:
  virtual ~ByteStream() = default;
  // Up to `size` bytes; 0 only at the end. UserError naming the file where it is damaged or
  // truncated.
  virtual size_t read(char* out, size_t size) = 0;
};

// A local path, or a URI that the file systems know. Files that end in .gz or .zst are
// decompressed.
std::unique_ptr<ByteStream> open_byte_stream(const std::string& path);

bool is_packed(const std::string& path);  // .gz or .zst

// Decompressors: each wraps the stream that it reads from.
std::unique_ptr<ByteStream> open_gzip(std::unique_ptr<ByteStream> packed, std::string name);
std::unique_ptr<ByteStream> open_zstd(std::unique_ptr<ByteStream> packed, std::string name);
std::unique_ptr<ByteStream> stream_of_bytes(std::string bytes);  // for tests and fuzzing

}  // namespace weft
