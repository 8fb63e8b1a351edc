// data/rows.cpp: several files as one list of rows.
#include "data/rows.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "data/formats.h"
#include "io/byte_stream.h"
#include "io/file_kind.h"

namespace weft {
namespace {

bool is_table(RowFormat format) {
  return format == RowFormat::kParquet || format == RowFormat::kArrow;
}

// Several sources as one: ends_[k] is the first row after source k. A file without rows is not an
// error among others.
class ChainedRows : public RowSource {
 public:
  explicit ChainedRows(std::vector<LeftOut> left_out) : left_out_(std::move(left_out)) {}
  void add(std::unique_ptr<RowSource> part) {
    ends_.push_back(size() + part->size());
    parts_.push_back(std::move(part));
  }
  int64_t size() const override { return ends_.empty() ? 0 : ends_.back(); }
  void read(int64_t i, Row& out) const override {
    const auto [part, row] = find(i);
    parts_[part]->read(row, out);
  }
  std::string where(int64_t i) const override {
    const auto [part, row] = find(i);
    return parts_[part]->where(row);
  }
  int64_t extent_begin(int64_t i) const override {
    const auto [part, row] = find(i);
    return i - row + parts_[part]->extent_begin(row);
  }
  int64_t extent_end(int64_t i) const override {
    const auto [part, row] = find(i);
    return i - row + parts_[part]->extent_end(row);
  }
  std::unique_ptr<RowScan> scan(int64_t first) const override {
    return std::make_unique<Scan>(*this, first);
  }
  std::vector<FileInfo> files() const override {
    std::vector<FileInfo> all;
    for (const auto& part : parts_) {
      const std::vector<FileInfo> some = part->files();
      all.insert(all.end(), some.begin(), some.end());
    }
    return all;
  }
  // Including files without rows in between: a scan checks that they still have none.
  std::vector<FileInfo> files_of(int64_t begin, int64_t end) const override {
    std::vector<FileInfo> some;
    if (begin >= end) return some;
    for (size_t part = find(begin).first, last = find(end - 1).first; part <= last; ++part) {
      const std::vector<FileInfo> files = parts_[part]->files();
      some.insert(some.end(), files.begin(), files.end());
    }
    return some;
  }
  std::vector<std::string> column_names() const override {
    const auto [part, row] = find(0);
    return parts_[part]->column_names();
  }
  int64_t num_blank() const override {
    int64_t blank = 0;
    for (const auto& part : parts_) blank += part->num_blank();
    return blank;
  }
  std::vector<LeftOut> left_out() const override { return left_out_; }

 private:
  class Scan : public RowScan {
   public:
    Scan(const ChainedRows& rows, int64_t first) : rows_(rows), part_(rows.parts_.size()) {
      if (first >= rows.size()) return;
      const auto [part, row] = rows.find(first);
      part_ = part;
      scan_ = rows.parts_[part]->scan(row);
    }
    bool next(Row& out) override {
      while (part_ < rows_.parts_.size()) {
        if (scan_->next(out)) return true;
        if (++part_ < rows_.parts_.size()) scan_ = rows_.parts_[part_]->scan(0);
      }
      return false;
    }

   private:
    const ChainedRows& rows_;
    size_t part_;
    std::unique_ptr<RowScan> scan_;
  };

  std::pair<size_t, int64_t> find(int64_t i) const {
    ensure(i >= 0 && i < size(), "row outside the data");
    const auto k =
        static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), i) - ends_.begin());
    return {k, k == 0 ? i : i - ends_[k - 1]};
  }
  std::vector<std::unique_ptr<RowSource>> parts_;
  std::vector<int64_t> ends_;
  std::vector<LeftOut> left_out_;
};

// The first bytes of a file, up to the first line that is not blank.
bool begins_with_json_object(std::string_view head) {
  const size_t begin = head.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos || head[begin] != '{') return false;
  const size_t end = head.find('\n', begin);
  if (end == std::string_view::npos && head.size() == kHeadBytes) {
    const size_t name = head.find_first_not_of(" \t", begin + 1);  // too long to be parsed
    return name != std::string_view::npos && head[name] == '"';
  }
  try {
    return parse_json(std::string(head.substr(begin, end - begin)), "").is_object();
  } catch (const UserError&) {
    return false;
  }
}

// A file read as text for lack of a known extension may be anything.
void refuse_other_than_text(const std::string& path) {
  const std::string head = head_of_file(path);
  const std::string kind = binary_kind(head);
  if (kind.empty() && !known_format(path) && begins_with_json_object(head)) {
    throw UserError(
        fmt::format("{}: the file extension is unknown, and the lines are JSON objects", path),
        "set data.format: jsonl to read the objects as rows, or data.format: text to read plain "
        "lines");
  }
  if (kind.empty()) return;
  throw UserError(fmt::format("{}: not a text file: {}", path, kind),
                  "wanted text, JSON lines, CSV, Parquet or Arrow files; data.format: text reads "
                  "it as text anyway");
}

std::unique_ptr<RowSource> open_file(const std::string& path, RowFormat format,
                                     const std::vector<std::string>& columns,
                                     size_t max_row_bytes) {
  if (is_table(format)) return open_table_rows(path, format, columns, max_row_bytes);
  if (is_packed(path) || is_uri(path)) return open_stream_rows(path, format, max_row_bytes);
  return open_line_rows(path, format, max_row_bytes);
}

}  // namespace

void refuse_long_row(std::string_view where, size_t max_row_bytes) {
  throw UserError(
      fmt::format("{}: the row is longer than {} bytes (data.max_row_bytes)", where, max_row_bytes),
      "split the row, or raise data.max_row_bytes");
}

const Row::Column* Row::find(std::string_view name) const {
  for (size_t i = columns.size(); i-- > 0;) {
    if (columns[i].name == name) return &columns[i];
  }
  return nullptr;
}

std::vector<std::string> Row::names() const {
  std::vector<std::string> out;
  for (const Column& c : columns) out.push_back(c.name);
  return out;
}

std::unique_ptr<RowSource> open_rows(const std::vector<std::string>& paths,
                                     const std::string& format, std::string_view what,
                                     const std::vector<std::string>& columns,
                                     size_t max_row_bytes) {
  const FoundFiles found = expand_paths(paths, what, format);
  const std::vector<std::string>& files = found.paths;
  auto chain = std::make_unique<ChainedRows>(found.left_out);
  for (const std::string& path : files) {
    const RowFormat kind = row_format(path, format);
    if (format == "auto" && kind == RowFormat::kText) refuse_other_than_text(path);
    chain->add(open_file(path, kind, columns, max_row_bytes));
  }
  if (chain->size() == 0) {
    throw UserError(fmt::format("{}: no rows in {}", what, fmt::join(files, ", ")),
                    "name a file that holds at least one global batch of rows");
  }
  return chain;
}

}  // namespace weft
