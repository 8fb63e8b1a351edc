// io/table.h: one Parquet or Arrow file as rows of text.
//
// Rows come in order, one batch at a time, with the requested columns only; an
// *extent* (row group, record batch) can be read without those before it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

struct Cell {
  enum class Kind { kText, kNull, kNested };
  std::string_view text;  // of a nested value (list, struct, map): JSON
  Kind kind = Kind::kNull;
};

struct TableColumn {
  std::string name;
  std::string type;  // in Arrow's words
};

class TableScan {
 public:
  virtual ~TableScan() = default;
  // The next row, in the order of the requested columns; false at the end. Cells are valid until
  // the next call.
  virtual bool next(std::vector<Cell>& cells) = 0;
};

class Table {
 public:
  virtual ~Table() = default;
  virtual int64_t num_rows() const = 0;
  virtual const std::vector<TableColumn>& columns() const = 0;
  virtual int64_t extent_begin(int64_t row) const = 0;  // the first row of the extent of `row`
  virtual int64_t extent_end(int64_t row) const = 0;    // the first row after it
  // Thread-safe if each thread has its own scan. UserError where a column is missing.
  virtual std::unique_ptr<TableScan> scan(int64_t first,
                                          const std::vector<std::string>& columns) const = 0;
};

enum class TableFormat { kParquet, kArrow };  // kArrow: IPC, as a file or as a stream

// A local path or a URI. UserError naming the file where it is damaged, or Arrow is not built.
std::unique_ptr<Table> open_table(const std::string& path, TableFormat format);

}  // namespace weft
