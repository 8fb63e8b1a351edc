// tests/fuzz/packed_fuzz.cpp: any bytes as gzip and as zstd: decompressed or rejected, nothing
// else.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "io/byte_stream.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  std::vector<char> buffer(4096);
  for (const bool gzip : {true, false}) {
    try {
      auto packed = weft::stream_of_bytes(bytes);
      const auto stream = gzip ? weft::open_gzip(std::move(packed), "fuzz")
                               : weft::open_zstd(std::move(packed), "fuzz");
      // A few bytes may decompress to many: a bomb is not a bug of the reader.
      for (size_t total = 0; total < size_t{1} << 22;) {
        const size_t n = stream->read(buffer.data(), buffer.size());
        if (n == 0) break;
        total += n;
      }
    } catch (const weft::UserError&) {
    }
  }
  return 0;
}
