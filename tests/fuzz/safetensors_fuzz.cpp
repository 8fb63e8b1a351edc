// tests/fuzz/safetensors_fuzz.cpp: any bytes are a valid header or a UserError, and every returned
// tensor is within the bytes. Build with clang: -fsanitize=fuzzer,address.
#include <cstdint>
#include <cstdlib>

#include "base/error.h"
#include "base/hash.h"
#include "io/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view file(reinterpret_cast<const char*>(data), size);
  try {
    const weft::SafetensorsHeader header = weft::parse_safetensors(file, "fuzz");
    size_t at = 0;
    for (const weft::TensorInfo& t : header.tensors) {
      if (t.begin != at || t.end > size - header.data_start) std::abort();
      at = t.end;
      weft::hash_bytes(data + header.data_start + t.begin, t.end - t.begin);
    }
  } catch (const weft::UserError&) {
  }
  return 0;
}
