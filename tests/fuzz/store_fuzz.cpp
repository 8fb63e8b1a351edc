// tests/fuzz/store_fuzz.cpp: any bytes are a frame of the store or none; a frame that was read is
// written as the same bytes.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "net/store_frame.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  const auto frame = weft::parse_store_frame(bytes.data(), bytes.size());
  if (!frame) return 0;
  const std::string written = weft::write_store_frame(frame->kind, frame->key, frame->value);
  if (written.substr(4) != bytes) std::abort();
  if (weft::read_store_length(written.data()) != bytes.size()) std::abort();
  return 0;
}
