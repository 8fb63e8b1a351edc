// io/arrow/table.cpp: opens both formats.
#include "io/table.h"

#include "io/arrow/arrow_files.h"

namespace weft {

std::unique_ptr<Table> open_table(const std::string& path, TableFormat format) {
  return format == TableFormat::kParquet ? open_parquet(path) : open_ipc(path);
}

}  // namespace weft
