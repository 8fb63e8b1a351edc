// io/arrow/ipc.cpp: Arrow files of both forms: with a footer (.arrow, .feather), and the stream
// that Hugging Face datasets writes.
//
// Batches are checked in full before a cell is read: their offsets come unchecked from the file.
#include <arrow/buffer.h>
#include <arrow/io/interfaces.h>
#include <arrow/ipc/reader.h>
#include <arrow/record_batch.h>

#include <algorithm>

#include "io/arrow/arrow_files.h"

namespace weft {
namespace {

constexpr std::string_view kMagic = "ARROW1";

using Batch = std::shared_ptr<arrow::RecordBatch>;

bool has_footer(const std::string& path) {
  const auto file = open_arrow_file(path, FileAccess::kMapped);
  const auto head = take_arrow(file->ReadAt(0, int64_t{kMagic.size()}), path, "reading the file");
  return std::string_view(reinterpret_cast<const char*>(head->data()),
                          static_cast<size_t>(head->size())) == kMagic;
}

// Batches of either form, from the one numbered `first` on.
FetchBatch batches_from(const std::string& path, bool footer, size_t first,
                        const std::vector<int>& fields) {
  arrow::ipc::IpcReadOptions options;
  options.use_threads = false;
  options.included_fields = fields;
  if (footer) {
    const auto reader = take_arrow(arrow::ipc::RecordBatchFileReader::Open(
                                       open_arrow_file(path, FileAccess::kMapped), options),
                                   path, "opening the file");
    return [reader, path, i = static_cast<int>(first)]() mutable -> Batch {
      if (i >= reader->num_record_batches()) return nullptr;
      return take_arrow(reader->ReadRecordBatch(i++), path, "reading the rows");
    };
  }
  const std::shared_ptr<arrow::io::InputStream> stream = open_arrow_file(path, FileAccess::kMapped);
  const auto reader = take_arrow(arrow::ipc::RecordBatchStreamReader::Open(stream, options), path,
                                 "opening the file");
  const auto next = [reader, path]() -> Batch {
    Batch batch;
    check_arrow(reader->ReadNext(&batch), path, "reading the rows");
    return batch;
  };
  for (size_t i = 0; i < first; ++i) next();
  return next;
}

std::shared_ptr<arrow::Schema> schema_of(const std::string& path, bool footer) {
  const auto file = open_arrow_file(path, FileAccess::kMapped);
  if (footer) {
    return take_arrow(arrow::ipc::RecordBatchFileReader::Open(file), path, "opening the file")
        ->schema();
  }
  const std::shared_ptr<arrow::io::InputStream> stream = file;
  return take_arrow(arrow::ipc::RecordBatchStreamReader::Open(stream), path, "opening the file")
      ->schema();
}

class IpcTable : public Table {
 public:
  explicit IpcTable(const std::string& path) : path_(path), footer_(has_footer(path)) {
    columns_ = columns_of(*schema_of(path, footer_));
    // One column is enough to learn how many rows the batches have.
    const std::vector<int> fields(columns_.empty() ? 0 : 1);
    const FetchBatch next = batches_from(path, footer_, 0, fields);
    int64_t rows = 0;
    while (const Batch batch = next()) {
      require(batch->num_rows() >= 0, "{}: a batch of {} rows", path_, batch->num_rows());
      ends_.push_back(rows += batch->num_rows());
    }
  }

  int64_t num_rows() const override { return ends_.empty() ? 0 : ends_.back(); }
  const std::vector<TableColumn>& columns() const override { return columns_; }
  int64_t extent_begin(int64_t row) const override { return begin_of(batch_of(row)); }
  int64_t extent_end(int64_t row) const override { return ends_[batch_of(row)]; }

  std::unique_ptr<TableScan> scan(int64_t first,
                                  const std::vector<std::string>& columns) const override {
    if (first >= num_rows()) return scan_batches([] { return nullptr; }, columns, 0, path_);
    std::vector<int> fields;
    for (size_t i = 0; i < columns_.size(); ++i) {
      const bool wanted =
          std::find(columns.begin(), columns.end(), columns_[i].name) != columns.end();
      if (wanted) fields.push_back(static_cast<int>(i));
    }
    const size_t batch = batch_of(first);
    const auto next = batches_from(path_, footer_, batch, fields);
    const auto checked = [next, path = path_]() -> Batch {
      Batch made = next();
      if (made) check_arrow(made->ValidateFull(), path, "checking the rows");
      return made;
    };
    return scan_batches(checked, columns, first - begin_of(batch), path_);
  }

 private:
  int64_t begin_of(size_t batch) const { return batch == 0 ? 0 : ends_[batch - 1]; }

  size_t batch_of(int64_t row) const {
    ensure(row >= 0 && row < num_rows(), "a row of the table");
    return static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), row) - ends_.begin());
  }

  std::string path_;
  bool footer_;
  std::vector<TableColumn> columns_;
  std::vector<int64_t> ends_;  // of batches: the first row after each
};

}  // namespace

std::unique_ptr<Table> open_ipc(const std::string& path) {
  return std::make_unique<IpcTable>(path);
}

}  // namespace weft
