// io/no_arrow/table.cpp: a build without Arrow says so.
#include "io/table.h"

#include "base/error.h"

namespace weft {

std::unique_ptr<Table> open_table(const std::string& path, TableFormat) {
  throw UserError(fmt::format("{}: this build cannot read Parquet or Arrow files", path),
                  "build with -DWEFT_ARROW=ON, or write the rows as .jsonl");
}

}  // namespace weft
