// data/rows.h: rows of named columns, out of text files and JSON lines.
//
// Files are mapped, never read whole; several files, globs and folders are one data set, in the
// order in which they were named (files of a glob or a folder by name).
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace weft {

struct Row {
  struct Column {
    std::string name;
    std::string text;     // strings as they are, numbers and bools as JSON writes them
    bool is_text = true;  // false: a list or an object, which no template can take
  };
  std::vector<Column> columns;
  bool repaired = false;  // bytes that were no UTF-8 became U+FFFD

  const Column* find(std::string_view name) const;  // of a name given twice the last counts
  std::vector<std::string> names() const;
};

class RowSource {
 public:
  virtual ~RowSource() = default;
  virtual int64_t size() const = 0;
  // Fills `out`, whose memory is used again. UserError with file and line where the row is bad.
  // Safe from several threads.
  virtual void read(int64_t i, Row& out) const = 0;
  virtual std::string where(int64_t i) const = 0;  // "file:line", for messages
};

enum class RowFormat { kText, kJsonLines };

// By extension where `format` is "auto"; UserError for a format that is not built.
RowFormat row_format(const std::filesystem::path& path, std::string_view format);

// The files that `paths` (files, globs, folders) name. UserError where one names nothing.
std::vector<std::filesystem::path> expand_paths(const std::vector<std::string>& paths);

// `what` names the option in messages (data.train). UserError where all files are empty.
std::unique_ptr<RowSource> open_rows(const std::vector<std::string>& paths,
                                     const std::string& format, std::string_view what);

// The same over bytes in memory, for tests and fuzzing; may have no rows.
std::unique_ptr<RowSource> rows_in_memory(std::string bytes, RowFormat format, std::string name);

}  // namespace weft
