// io/byte_stream.h: bytes in order: of a file, or of what is packed in it.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

namespace weft {

class ByteStream {
 public:
  virtual ~ByteStream() = default;
  // Up to `size` bytes; 0 at the end alone. UserError naming the file where it is damaged or cut.
  virtual size_t read(char* out, size_t size) = 0;
};

// A local path, or a URI that the file systems know. What ends in .gz or .zst is unpacked.
std::unique_ptr<ByteStream> open_byte_stream(const std::string& path);

bool is_packed(const std::string& path);  // .gz or .zst

// The parts: each takes the stream that it unpacks.
std::unique_ptr<ByteStream> open_gzip(std::unique_ptr<ByteStream> packed, std::string name);
std::unique_ptr<ByteStream> open_zstd(std::unique_ptr<ByteStream> packed, std::string name);
std::unique_ptr<ByteStream> stream_of_bytes(std::string bytes);  // for tests and fuzzing

}  // namespace weft
