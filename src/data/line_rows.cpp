// data/line_rows.cpp: the rows of a text in memory or mapped: random access.
#include <algorithm>
#include <type_traits>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "data/line_index.h"
#include "data/line_store.h"
#include "data/record.h"

namespace weft {
namespace {

constexpr int64_t kExtentRows = 8192;  // scans may begin anywhere; this many balance well

constexpr uint64_t kDropBytes = uint64_t{1} << 22;

// A mapped text would stay in our resident memory; so a scan releases the pages it has passed. The
// page cache keeps them as long as the machine has memory.
class LineRows : public RowSource {
 public:
  // `map` and `info`: set where the text is a mapped file.
  LineRows(std::string_view text, RowFormat format, std::string name, const MappedFile* map,
           const FileInfo* info, size_t max_row_bytes)
      : text_(text),
        format_(format),
        name_(std::move(name)),
        map_(map),
        parser_(format, name_, max_row_bytes),
        index_(text, format, find_marks(info)) {
    check_quote(index_.open_quote());
  }

  int64_t size() const override { return index_.size(); }
  int64_t num_blank() const override { return index_.num_blank(); }
  int64_t extent_begin(int64_t row) const override { return row; }
  int64_t extent_end(int64_t row) const override { return std::min(size(), row + kExtentRows); }
  std::vector<FileInfo> files() const override { return {}; }

  std::string where(int64_t i) const override {
    return fmt::format("{}:{}", name_, index_.line_number(index_.offset(i)));
  }

  void read(int64_t i, Row& out) const override { parse(index_.offset(i), out); }

  std::unique_ptr<RowScan> scan(int64_t first) const override {
    return std::make_unique<Scan>(*this, first < size() ? index_.offset(first) : text_.size());
  }

  std::vector<std::string> column_names() const override {
    if (parser_.wants_header()) return parser_.header();
    Row row;
    if (size() > 0) read(0, row);
    return row.names();
  }

 private:
  class Scan : public RowScan {
   public:
    Scan(const LineRows& rows, uint64_t at) : rows_(rows), at_(at), kept_(at) {}
    ~Scan() override { rows_.drop(kept_, at_); }
    bool next(Row& out) override {
      if (at_ - kept_ >= kDropBytes) rows_.drop(std::exchange(kept_, at_), at_);
      while (at_ < rows_.text_.size()) {
        const uint64_t begin = at_;
        at_ = record_end(rows_.format_, rows_.text_, begin).at;
        if (!is_counted(rows_.format_, rows_.text_.substr(begin, at_ - begin))) continue;
        rows_.parse(begin, out);
        return true;
      }
      return false;
    }

   private:
    const LineRows& rows_;
    uint64_t at_;
    uint64_t kept_;  // from here to at_ the text is in memory
  };

  LineMarks find_marks(const FileInfo* info) {
    const uint64_t begin = read_header();
    const auto scan = [&] {
      return LineIndex::scan(text_, format_, begin,
                             [this](uint64_t from, uint64_t to) { drop(from, to); });
    };
    return info ? marks_of_file(*info, format_, scan) : scan();
  }

  void drop(uint64_t begin, uint64_t end) const {
    if (map_) map_->drop_pages(begin, end);
  }

  void check_quote(size_t at) const {
    if (at == std::string_view::npos) return;
    const auto before = text_.substr(0, at);
    refuse_open_quote(name_, 1 + std::count(before.begin(), before.end(), '\n'));
  }

  // Where the rows begin: after a byte-order mark and the line of column names.
  uint64_t read_header() {
    if (ends_lines_with_cr(text_)) refuse_cr_lines(name_);
    uint64_t begin = format_ != RowFormat::kText && text_.starts_with(kByteOrderMark)
                         ? kByteOrderMark.size()
                         : 0;
    while (parser_.wants_header() && begin < text_.size()) {
      const RecordEnd end = record_end(format_, text_, begin);
      check_quote(end.open_quote);
      const std::string_view record = text_.substr(begin, end.at - begin);
      begin = end.at;
      if (!is_counted(format_, record)) continue;
      parser_.set_header(record);
      break;
    }
    return begin;
  }

  void parse(uint64_t offset, Row& out) const {
    const std::string_view record =
        text_.substr(offset, record_end(format_, text_, offset).at - offset);
    parser_.parse(
        record, [&] { return index_.line_number(offset); }, out);
  }

  std::string_view text_;
  RowFormat format_;
  std::string name_;
  const MappedFile* map_;
  RecordParser parser_;
  LineIndex index_;
};

// Rows over bytes that they own: a mapped file, or a string.
template <typename Bytes>
class OwnedRows : public RowSource {
 public:
  OwnedRows(Bytes bytes, std::string_view (*text)(const Bytes&), RowFormat format,
            const std::string& name, std::vector<FileInfo> files, size_t max_row_bytes)
      : bytes_(std::move(bytes)),
        files_(std::move(files)),
        rows_(text(bytes_), format, name, map_of(bytes_), files_.empty() ? nullptr : &files_[0],
              max_row_bytes) {}
  int64_t size() const override { return rows_.size(); }
  int64_t num_blank() const override { return rows_.num_blank(); }
  int64_t extent_begin(int64_t row) const override { return row; }
  int64_t extent_end(int64_t row) const override { return rows_.extent_end(row); }
  std::unique_ptr<RowScan> scan(int64_t first) const override { return rows_.scan(first); }
  void read(int64_t i, Row& out) const override { rows_.read(i, out); }
  std::string where(int64_t i) const override { return rows_.where(i); }
  std::vector<FileInfo> files() const override { return files_; }
  std::vector<std::string> column_names() const override { return rows_.column_names(); }

 private:
  static const MappedFile* map_of(const Bytes& bytes) {
    if constexpr (std::is_same_v<Bytes, MappedFile>) return &bytes;
    return nullptr;
  }

  Bytes bytes_;
  std::vector<FileInfo> files_;
  LineRows rows_;
};

}  // namespace

std::unique_ptr<RowSource> open_line_rows(const std::string& path, RowFormat format,
                                          size_t max_row_bytes) {
  std::vector<FileInfo> files{file_info(path)};
  const auto text = [](const MappedFile& file) { return file.text(); };
  return std::make_unique<OwnedRows<MappedFile>>(MappedFile(path), text, format, path,
                                                 std::move(files), max_row_bytes);
}

std::unique_ptr<RowSource> rows_in_memory(std::string bytes, RowFormat format, std::string name) {
  // A pointer, since a short string's bytes would move with the string.
  using Held = std::unique_ptr<const std::string>;
  const auto text = [](const Held& held) { return std::string_view(*held); };
  return std::make_unique<OwnedRows<Held>>(std::make_unique<const std::string>(std::move(bytes)),
                                           text, format, name, std::vector<FileInfo>(),
                                           kMaxRowBytes);
}

}  // namespace weft
