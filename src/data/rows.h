// data/rows.h: rows of named columns, from text, JSON lines, CSV, Parquet and Arrow files.
//
// No file is read whole: local text is mapped, tables are read by row group, compressed and remote
// text is streamed. Several files, globs and folders form one dataset, in the given order (files of
// a glob or a folder by name).
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/found_files.h"
#include "io/file_system.h"

namespace weft {

struct Row {
  enum class Kind {
    kText,    // strings unchanged, numbers and bools as in JSON
    kNull,    // empty
    kNested,  // a list or an object, as JSON: not usable in templates
  };
  struct Column {
    std::string name;
    std::string text;
    Kind kind = Kind::kText;
  };
  std::vector<Column> columns;
  bool repaired = false;  // invalid UTF-8 was replaced by U+FFFD

  const Column* find(std::string_view name) const;  // the last of duplicate names wins
  std::vector<std::string> names() const;
};

class RowScan {
 public:
  virtual ~RowScan() = default;
  // The next row, into reused memory; false at the end. UserError with file and line where the row
  // is bad.
  virtual bool next(Row& out) = 0;
};

class RowSource {
 public:
  virtual ~RowSource() = default;
  virtual int64_t size() const = 0;
  // Rows in order, from `first` (at most size()) on. Thread-safe.
  virtual std::unique_ptr<RowScan> scan(int64_t first) const = 0;
  // A scan may have to decompress rows before its first one: from which row (the row itself where
  // not), and up to which row one scan should continue for that reason.
  virtual int64_t extent_begin(int64_t row) const = 0;
  virtual int64_t extent_end(int64_t row) const = 0;
  // One row; cheap for sequential access. Thread-safe.
  virtual void read(int64_t i, Row& out) const = 0;
  virtual std::string where(int64_t i) const = 0;  // "file:line", for messages
  // The files, as they were when opened; empty: in memory.
  virtual std::vector<FileInfo> files() const = 0;
  // Those that a scan passes from row `begin` to before row `end`: of 10,000 files mostly one.
  virtual std::vector<FileInfo> files_of(int64_t, int64_t) const { return files(); }
  virtual std::vector<std::string> column_names() const = 0;  // of the first file
  // Number of TSV lines with only separators and blanks, which are not rows.
  virtual int64_t num_blank() const { return 0; }
  // Ignored files of the given folders and patterns.
  virtual std::vector<LeftOut> left_out() const { return {}; }
};

enum class RowFormat { kText, kJsonLines, kCsv, kTsv, kParquet, kArrow };
std::string_view format_name(RowFormat format);

// By extension (.gz and .zst taken off) where `format` is "auto". UserError for an unknown one.
RowFormat row_format(const std::string& path, std::string_view format);
bool is_table_file(const std::string& path);  // Parquet or Arrow, by its extension
// For hints about columns: a note about the header line where row i is in a CSV file; else empty.
std::string header_remark(const RowSource& rows, int64_t i, std::string_view format);

// The files that `paths` (files, globs, folders, URIs, names in the Hugging Face cache) name.
// `what`: the option, data.train or data.eval, which selects the split. UserError where one of the
// paths matches nothing.
FoundFiles expand_paths(const std::vector<std::string>& paths, std::string_view what,
                        std::string_view format);

// Longer rows are refused: they are usually a whole file by mistake.
inline constexpr size_t kMaxRowBytes = 16'000'000;
[[noreturn]] void refuse_long_row(std::string_view where, size_t max_row_bytes);

// `what` names the option in messages (data.train). Only `columns` of tables are read (empty: all).
// UserError where all files are empty, or a table lacks these columns; a scan throws one where a
// row has more than `max_row_bytes`.
std::unique_ptr<RowSource> open_rows(const std::vector<std::string>& paths,
                                     const std::string& format, std::string_view what,
                                     const std::vector<std::string>& columns = {},
                                     size_t max_row_bytes = kMaxRowBytes);

// Text, JSON lines or CSV over bytes in memory, for tests and fuzzing; may have no rows.
std::unique_ptr<RowSource> rows_in_memory(std::string bytes, RowFormat format, std::string name);

// One file of each kind.
std::unique_ptr<RowSource> open_line_rows(const std::string& path, RowFormat format,
                                          size_t max_row_bytes);
std::unique_ptr<RowSource> open_stream_rows(const std::string& path, RowFormat format,
                                            size_t max_row_bytes);
std::unique_ptr<RowSource> open_table_rows(const std::string& path, RowFormat format,
                                           const std::vector<std::string>& columns,
                                           size_t max_row_bytes);

}  // namespace weft
