// io/arrow/parquet.cpp: Parquet, streamed by row group, only the requested columns.
#include <arrow/io/interfaces.h>
#include <arrow/record_batch.h>
#include <parquet/arrow/reader.h>
#include <parquet/arrow/schema.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>
#include <parquet/properties.h>

#include <algorithm>

#include "io/arrow/arrow_files.h"

namespace weft {
namespace {

constexpr int64_t kBatchRows = 512;        // decoded at a time
constexpr int64_t kBufferBytes = 1 << 20;  // of compressed bytes per column

// Parquet's lower half throws, its upper half returns a status.
template <typename Fn>
auto guarded(const std::string& path, const Fn& fn) {
  try {
    return fn();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& e) {
    throw UserError(fmt::format("{}: damaged Parquet file: {}", path, e.what()));
  }
}

parquet::ReaderProperties reader_properties() {
  parquet::ReaderProperties properties;
  properties.enable_buffered_stream();  // pages as they are needed, not whole column chunks
  properties.set_buffer_size(kBufferBytes);
  properties.set_page_checksum_verification(true);
  return properties;
}

void add_leaves(const parquet::arrow::SchemaField& field, std::vector<int>& leaves) {
  if (field.is_leaf()) leaves.push_back(field.column_index);
  for (const auto& child : field.children) add_leaves(child, leaves);
}

// The file is reopened for each scan (readers are not shared among threads); its footer is shared.
class ParquetTable : public Table {
 public:
  explicit ParquetTable(const std::string& path) : path_(path) {
    guarded(path, [this] {
      const auto reader = open();
      metadata_ = reader->parquet_reader()->metadata();
      std::shared_ptr<arrow::Schema> schema;
      check_arrow(reader->GetSchema(&schema), path_, "reading the schema");
      columns_ = columns_of(*schema);
      int64_t rows = 0;  // summed over row groups: some writers leave 0 in the footer
      for (int g = 0; g < metadata_->num_row_groups(); ++g) {
        const int64_t n = metadata_->RowGroup(g)->num_rows();
        require(n >= 0, "{}: row group {} has {} rows", path_, g, n);
        ends_.push_back(rows += n);
      }
      return 0;
    });
  }

  int64_t num_rows() const override { return ends_.empty() ? 0 : ends_.back(); }
  const std::vector<TableColumn>& columns() const override { return columns_; }
  int64_t extent_begin(int64_t row) const override { return begin_of(group_of(row)); }
  int64_t extent_end(int64_t row) const override { return ends_[group_of(row)]; }

  std::unique_ptr<TableScan> scan(int64_t first,
                                  const std::vector<std::string>& columns) const override {
    if (first >= num_rows()) return scan_batches([] { return nullptr; }, columns, 0, path_);
    return guarded(path_, [&] {
      // The batches refer to the reader, so the scan keeps it alive.
      const std::shared_ptr<parquet::arrow::FileReader> reader = open();
      const size_t group = group_of(first);
      std::vector<int> groups;
      for (size_t g = group; g < ends_.size(); ++g) groups.push_back(static_cast<int>(g));
      std::shared_ptr<arrow::RecordBatchReader> batches =
          take_arrow(reader->GetRecordBatchReader(groups, leaves_of(*reader, columns)), path_,
                     "reading the rows");
      const int64_t skip = first - begin_of(group);
      auto fetch = [reader, batches, path = path_] {
        return guarded(path, [&] {
          std::shared_ptr<arrow::RecordBatch> batch;
          check_arrow(batches->ReadNext(&batch), path, "reading the rows");
          return batch;
        });
      };
      return scan_batches(fetch, columns, skip, path_);
    });
  }

 private:
  std::shared_ptr<parquet::arrow::FileReader> open() const {
    auto file = parquet::ParquetFileReader::Open(open_arrow_file(path_, FileAccess::kRead),
                                                 reader_properties(), metadata_);
    parquet::ArrowReaderProperties properties(/*use_threads=*/false);
    properties.set_batch_size(kBatchRows);
    properties.set_pre_buffer(false);  // a row group may be larger than memory
    return take_arrow(
        parquet::arrow::FileReader::Make(arrow::default_memory_pool(), std::move(file), properties),
        path_, "opening the file");
  }

  int64_t begin_of(size_t group) const { return group == 0 ? 0 : ends_[group - 1]; }

  size_t group_of(int64_t row) const {
    ensure(row >= 0 && row < num_rows(), "a row of the table");
    return static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), row) - ends_.begin());
  }

  std::vector<int> leaves_of(const parquet::arrow::FileReader& reader,
                             const std::vector<std::string>& columns) const {
    std::vector<int> leaves;
    for (const auto& field : reader.manifest().schema_fields) {
      const bool wanted =
          std::find(columns.begin(), columns.end(), field.field->name()) != columns.end();
      if (wanted) add_leaves(field, leaves);
    }
    return leaves;
  }

  std::string path_;
  std::shared_ptr<parquet::FileMetaData> metadata_;
  std::vector<TableColumn> columns_;
  std::vector<int64_t> ends_;  // of row groups: the first row after each
};

}  // namespace

std::unique_ptr<Table> open_parquet(const std::string& path) {
  return guarded(path, [&] { return std::make_unique<ParquetTable>(path); });
}

}  // namespace weft
