// io/arrow/arrow_files.h: what the files of this folder share. Arrow's headers stay in the .cpp.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "io/table.h"

namespace arrow {
class RecordBatch;
class Schema;
namespace fs {
class FileSystem;
}
namespace io {
class RandomAccessFile;
}
}  // namespace arrow

namespace weft {

// Arrow's message, prefixed with ours.
template <typename Status>
void check_arrow(const Status& status, const std::string& path, std::string_view doing) {
  if (!status.ok()) {
    throw UserError(fmt::format("{}: {} failed: {}", path, doing, status.ToString()));
  }
}

template <typename Result>
auto take_arrow(Result&& result, const std::string& path, std::string_view doing) {
  check_arrow(result.status(), path, doing);
  return std::forward<Result>(result).ValueOrDie();
}

// kMapped suits data that is used in place; data that is decompressed anyway is better read: every
// page read through a mapping counts as resident memory.
enum class FileAccess { kMapped, kRead };
std::shared_ptr<arrow::io::RandomAccessFile> open_arrow_file(const std::string& path,
                                                             FileAccess access);

// A file system that is opened once per bucket, and the path of the URI in it. UserError.
struct OpenedUri {
  std::shared_ptr<arrow::fs::FileSystem> system;
  std::string path;
};
OpenedUri open_arrow_uri(const std::string& uri);

std::vector<TableColumn> columns_of(const arrow::Schema& schema);

// Rows of the batches that fetch() returns until it returns null; the first `skip` rows are
// skipped.
using FetchBatch = std::function<std::shared_ptr<arrow::RecordBatch>()>;
std::unique_ptr<TableScan> scan_batches(FetchBatch fetch, std::vector<std::string> columns,
                                        int64_t skip, std::string path);

std::unique_ptr<Table> open_parquet(const std::string& path);
std::unique_ptr<Table> open_ipc(const std::string& path);

}  // namespace weft
