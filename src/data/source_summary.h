// data/source_summary.h: which files a run reads, and how many rows they hold, in one line.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "data/rows.h"

namespace weft {

// "train 3 files, 56,355 rows: data/train-*.parquet", or with `taken` less than the number of rows:
// "..., 56,355 rows, the first 5,635 of them used: ...".
std::string describe_source(std::string_view name, const RowSource& rows, int64_t taken);
// {"files", "rows", "rows_used", "blank_lines", "bytes", "names"}: at most 64 names.
Json source_to_json(const RowSource& rows, int64_t taken);

// A pattern of what the names have in common: "data/train-*.parquet" for
// data/train-0-of-2.parquet and data/train-1-of-2.parquet.
std::string common_pattern(const std::vector<std::string>& paths);

std::string with_commas(int64_t number);  // 56,355

}  // namespace weft
