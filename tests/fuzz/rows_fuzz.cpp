// tests/fuzz/rows_fuzz.cpp: any bytes through the row readers: rows or a UserError, nothing else.
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/error.h"
#include "data/rows.h"

namespace {

// Every row alone, then all in order.
void use(const weft::RowSource& rows) {
  weft::Row row;
  for (int64_t i = 0; i < rows.size() && i < 256; ++i) {
    try {
      rows.read(i, row);
    } catch (const weft::UserError&) {
    }
  }
  const auto scan = rows.scan(0);
  while (scan->next(row)) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  for (const weft::RowFormat format : {weft::RowFormat::kText, weft::RowFormat::kJsonLines,
                                       weft::RowFormat::kCsv, weft::RowFormat::kTsv}) {
    try {
      use(*weft::rows_in_memory(bytes, format, "fuzz"));
    } catch (const weft::UserError&) {
    }
  }
  return 0;
}
