// tests/fuzz/json_fuzz.cpp: any bytes are a value or a UserError; a written value reads back as the
// same text; and a checkpoint index made of it is rejected or sound. Build with clang:
// -fsanitize=fuzzer,address.
#include <cstdint>
#include <cstdlib>

#include "base/error.h"
#include "base/json.h"
#include "checkpoint/index.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const weft::Json value = weft::parse_json(text, "fuzz");
    const std::string written = value.dump();
    if (weft::parse_json(written, "written").dump() != written) std::abort();
    weft::index_from_json(value, "fuzz");
  } catch (const weft::UserError&) {
  }
  return 0;
}
