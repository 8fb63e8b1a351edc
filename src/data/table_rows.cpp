// data/table_rows.cpp: the rows of a Parquet or Arrow file.
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "data/forward_rows.h"
#include "io/table.h"
#include "text/tokenizer.h"

namespace weft {
namespace {

class TableRows : public ForwardRows {
 public:
  TableRows(const std::string& path, TableFormat format, std::vector<std::string> columns,
            size_t max_row_bytes)
      : path_(path),
        max_row_bytes_(max_row_bytes),
        info_(file_info(path)),
        table_(open_table(path, format)),
        columns_(std::move(columns)) {
    if (columns_.empty()) columns_ = column_names();
    for (const std::string& name : columns_) check_column(name);
  }

  int64_t size() const override { return table_->num_rows(); }
  int64_t extent_begin(int64_t row) const override { return table_->extent_begin(row); }
  int64_t extent_end(int64_t row) const override { return table_->extent_end(row); }
  std::vector<FileInfo> files() const override { return {info_}; }
  std::string where(int64_t i) const override { return fmt::format("{}: row {}", path_, i + 1); }

  std::unique_ptr<RowScan> scan(int64_t first) const override {
    return std::make_unique<Scan>(*this, first);
  }

  std::vector<std::string> column_names() const override {
    std::vector<std::string> names;
    for (const TableColumn& c : table_->columns()) names.push_back(c.name);
    return names;
  }

 private:
  class Scan : public RowScan {
   public:
    Scan(const TableRows& rows, int64_t first)
        : rows_(rows), scan_(rows.table_->scan(first, rows.columns_)), at_(first) {}
    bool next(Row& out) override {
      if (!scan_->next(cells_)) return false;
      size_t bytes = 0;
      for (const Cell& cell : cells_) bytes += cell.text.size();
      if (bytes > rows_.max_row_bytes_) refuse_long_row(rows_.where(at_), rows_.max_row_bytes_);
      ++at_;
      out.repaired = false;
      out.columns.resize(cells_.size());
      for (size_t c = 0; c < cells_.size(); ++c)
        put(cells_[c], rows_.columns_[c], out, out.columns[c]);
      return true;
    }

   private:
    static void put(const Cell& cell, const std::string& name, Row& row, Row::Column& column) {
      column.name = name;
      column.text = cell.text;
      column.kind = cell.kind == Cell::Kind::kNull     ? Row::Kind::kNull
                    : cell.kind == Cell::Kind::kNested ? Row::Kind::kNested
                                                       : Row::Kind::kText;
      row.repaired |= repair_utf8(column.text);
    }

    const TableRows& rows_;
    std::unique_ptr<TableScan> scan_;
    int64_t at_;  // index of the row that next() returns
    std::vector<Cell> cells_;
  };

  void check_column(const std::string& name) const {
    const std::vector<std::string> names = column_names();
    const auto count = std::count(names.begin(), names.end(), name);
    if (count == 0) {
      throw UserError(fmt::format("{}: there is no column '{}'; there are: {}", path_, name,
                                  fmt::join(names, ", ")),
                      "set data.text, or data.source and data.target, to the columns of the data");
    }
    require(count == 1, "{}: there are {} columns '{}'", path_, count, name);
  }

  std::string path_;
  size_t max_row_bytes_;
  FileInfo info_;
  std::unique_ptr<Table> table_;
  std::vector<std::string> columns_;
};

}  // namespace

std::unique_ptr<RowSource> open_table_rows(const std::string& path, RowFormat format,
                                           const std::vector<std::string>& columns,
                                           size_t max_row_bytes) {
  const TableFormat table =
      format == RowFormat::kParquet ? TableFormat::kParquet : TableFormat::kArrow;
  return std::make_unique<TableRows>(path, table, columns, max_row_bytes);
}

}  // namespace weft
