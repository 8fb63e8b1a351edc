// data/stream_rows.cpp: compressed or remote text: its records in order, one buffer at a time.
#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/stop.h"
#include "data/forward_rows.h"
#include "data/record.h"
#include "io/byte_stream.h"

namespace weft {
namespace {

constexpr size_t kFirstBuffer = size_t{1} << 18;

// Splits a stream into records. The buffer is doubled for a record that does not fit, so that a
// long one is rescanned only a few times.
class RecordReader {
 public:
  RecordReader(std::unique_ptr<ByteStream> bytes, RowFormat format, std::string name,
               size_t max_row_bytes)
      : bytes_(std::move(bytes)),
        format_(format),
        name_(std::move(name)),
        max_row_bytes_(max_row_bytes),
        parser_(format, name_, max_row_bytes) {
    if (format != RowFormat::kText) skip_mark();
    std::string_view record;
    if (parser_.wants_header() && next_counted(record)) parser_.set_header(record);
  }

  // The next non-blank record, valid until the next call; false at the end.
  bool next_counted(std::string_view& record) {
    while (next(record)) {
      if (is_counted(format_, record)) return true;
      num_blank_ += has_blank_fields(format_, record);
    }
    return false;
  }

  int64_t line() const { return line_; }  // on which the last record began, from 1
  int64_t num_blank() const { return num_blank_; }
  const RecordParser& parser() const { return parser_; }

 private:
  bool next(std::string_view& record) {
    line_ = next_line_;
    while (true) {
      const std::string_view held(buffer_.data() + begin_, end_ - begin_);
      if (!held.empty()) {
        const RecordEnd end = record_end(format_, held, 0);
        if (is_end_ || end_ - begin_ > max_row_bytes_) check_quote(held, end.open_quote);
        if (end.is_whole || is_end_) {
          record = held.substr(0, end.at);
          if (begin_ == 0 && is_end_ && line_ == 1 && ends_lines_with_cr(record))
            refuse_cr_lines(name_);
          begin_ += end.at;
          next_line_ += std::count(record.begin(), record.end(), '\n');
          return true;
        }
      }
      if (is_end_) return false;
      fetch();
    }
  }

  void check_quote(std::string_view held, size_t at) const {
    if (at == std::string_view::npos) return;
    const auto before = held.substr(0, at);
    refuse_open_quote(name_, line_ + std::count(before.begin(), before.end(), '\n'));
  }

  void fetch() {
    if (begin_ > 0) std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
    if (end_ > max_row_bytes_) refuse_long_row(fmt::format("{}:{}", name_, line_), max_row_bytes_);
    if (end_ * 2 >= buffer_.size()) buffer_.resize(std::max(kFirstBuffer, buffer_.size() * 2));
    const size_t n = bytes_->read(buffer_.data() + end_, buffer_.size() - end_);
    end_ += n;
    is_end_ = n == 0;
  }

  void skip_mark() {
    while (end_ < kByteOrderMark.size() && !is_end_) fetch();
    if (std::string_view(buffer_.data(), end_).starts_with(kByteOrderMark)) {
      begin_ = kByteOrderMark.size();
    }
  }

  std::unique_ptr<ByteStream> bytes_;
  RowFormat format_;
  std::string name_;
  size_t max_row_bytes_;
  RecordParser parser_;
  std::vector<char> buffer_;
  size_t begin_ = 0, end_ = 0;  // the unread part of the buffer
  int64_t line_ = 1, next_line_ = 1;
  int64_t num_blank_ = 0;  // TSV: lines without a field that has text
  bool is_end_ = false;
};

class StreamRows : public ForwardRows {
 public:
  StreamRows(const std::string& path, RowFormat format, size_t max_row_bytes)
      : path_(path), format_(format), max_row_bytes_(max_row_bytes), info_(file_info(path)) {
    RecordReader reader = open();
    std::string_view record;
    Row row;
    while (reader.next_counted(record)) {
      if (size_ == 0)
        reader.parser().parse(
            record, [&] { return reader.line(); }, row);
      ++size_;
    }
    num_blank_ = reader.num_blank();
    names_ = reader.parser().wants_header() ? reader.parser().header() : row.names();
  }

  int64_t size() const override { return size_; }
  int64_t num_blank() const override { return num_blank_; }
  int64_t extent_begin(int64_t) const override { return 0; }
  int64_t extent_end(int64_t) const override { return size_; }
  std::vector<FileInfo> files() const override { return {info_}; }
  std::vector<std::string> column_names() const override { return names_; }

  std::unique_ptr<RowScan> scan(int64_t first) const override {
    auto made = std::make_unique<Scan>(open());
    std::string_view record;
    for (int64_t i = 0; i < first && made->reader.next_counted(record); ++i) {
      throw_if_stopped();  // everything before the row must be decompressed
    }
    return made;
  }

  std::string where(int64_t i) const override {
    RecordReader reader = open();
    std::string_view record;
    for (int64_t k = 0; k <= i && reader.next_counted(record); ++k) {
    }
    return fmt::format("{}:{}", path_, reader.line());
  }

 private:
  struct Scan : RowScan {
    explicit Scan(RecordReader r) : reader(std::move(r)) {}
    bool next(Row& out) override {
      std::string_view record;
      if (!reader.next_counted(record)) return false;
      reader.parser().parse(
          record, [this] { return reader.line(); }, out);
      return true;
    }
    RecordReader reader;
  };

  RecordReader open() const { return {open_byte_stream(path_), format_, path_, max_row_bytes_}; }

  std::string path_;
  RowFormat format_;
  size_t max_row_bytes_;
  FileInfo info_;
  int64_t size_ = 0, num_blank_ = 0;
  std::vector<std::string> names_;
};

}  // namespace

std::unique_ptr<RowSource> open_stream_rows(const std::string& path, RowFormat format,
                                            size_t max_row_bytes) {
  return std::make_unique<StreamRows>(path, format, max_row_bytes);
}

}  // namespace weft
