// data/rows.cpp: one class a file, one that chains them.
#include "data/rows.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "data/line_index.h"
#include "text/tokenizer.h"

namespace weft {
namespace {

std::string number_text(double v) {
  std::string text = fmt::format("{}", v);
  if (text.find_first_not_of("-0123456789") == std::string::npos) text += ".0";
  return text;
}

// A JSON value as a template shows it; nothing for lists and objects.
std::optional<std::string> value_text(const Json& value) {
  if (value.is_string()) return value.as_string();
  if (value.is_null()) return "";
  if (value.is_bool()) return value.as_bool() ? "true" : "false";
  if (value.is_int()) return std::to_string(value.as_int());
  if (value.is_number()) return number_text(value.as_number());
  return std::nullopt;
}

void put_column(Row& row, size_t i, std::string_view name, std::optional<std::string> text) {
  if (row.columns.size() <= i) row.columns.resize(i + 1);
  Row::Column& column = row.columns[i];
  column.name = name;
  column.is_text = text.has_value();
  column.text = text ? std::move(*text) : "";
}

// The rows of one text, mapped or in memory.
class LineRows : public RowSource {
 public:
  LineRows(std::string_view text, RowFormat format, std::string name)
      : index_(text, format == RowFormat::kJsonLines), format_(format), name_(std::move(name)) {}

  int64_t size() const override { return index_.size(); }

  std::string where(int64_t i) const override {
    return fmt::format("{}:{}", name_, index_.line_number(i));
  }

  void read(int64_t i, Row& out) const override {
    std::string line(index_.line(i));
    out.repaired = repair_utf8(line);
    if (format_ == RowFormat::kText) {
      put_column(out, 0, "text", std::move(line));
      out.columns.resize(1);
    } else {
      read_json(i, line, out);
    }
  }

 private:
  void read_json(int64_t i, const std::string& line, Row& out) const {
    Json value;
    try {
      value = parse_json(line, name_);
    } catch (const UserError& e) {
      throw UserError(fmt::format("{}: the line is not JSON ({})", where(i), e.what()),
                      "a JSON-lines file has one object a line");
    }
    if (!value.is_object()) {
      throw UserError(fmt::format("{}: wanted a JSON object, got {}", where(i), value.kind()),
                      "a JSON-lines file has one object a line");
    }
    size_t used = 0;
    for (const auto& [name, v] : value.as_object()) put_column(out, used++, name, value_text(v));
    out.columns.resize(used);
  }

  LineIndex index_;
  RowFormat format_;
  std::string name_;
};

class MappedRows : public RowSource {
 public:
  MappedRows(const std::filesystem::path& path, RowFormat format)
      : file_(path), rows_(file_.text(), format, path.string()) {}
  int64_t size() const override { return rows_.size(); }
  void read(int64_t i, Row& out) const override { rows_.read(i, out); }
  std::string where(int64_t i) const override { return rows_.where(i); }

 private:
  MappedFile file_;
  LineRows rows_;
};

class MemoryRows : public RowSource {
 public:
  MemoryRows(std::string bytes, RowFormat format, std::string name)
      : bytes_(std::move(bytes)), rows_(bytes_, format, std::move(name)) {}
  int64_t size() const override { return rows_.size(); }
  void read(int64_t i, Row& out) const override { rows_.read(i, out); }
  std::string where(int64_t i) const override { return rows_.where(i); }

 private:
  std::string bytes_;
  LineRows rows_;
};

// Several sources as one: ends_[k] is the first row after source k.
class ChainedRows : public RowSource {
 public:
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

 private:
  std::pair<size_t, int64_t> find(int64_t i) const {
    ensure(i >= 0 && i < size(), "row outside the data");
    const auto k =
        static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), i) - ends_.begin());
    return {k, k == 0 ? i : i - ends_[k - 1]};
  }
  std::vector<std::unique_ptr<RowSource>> parts_;
  std::vector<int64_t> ends_;
};

}  // namespace

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
                                     const std::string& format, std::string_view what) {
  auto chain = std::make_unique<ChainedRows>();
  const std::vector<std::filesystem::path> files = expand_paths(paths);
  for (const std::filesystem::path& path : files) {
    chain->add(std::make_unique<MappedRows>(path, row_format(path, format)));
  }
  if (chain->size() == 0) {
    std::vector<std::string> names;
    for (const auto& path : files) names.push_back(path.string());
    throw UserError(fmt::format("{}: no rows in {}", what, fmt::join(names, ", ")),
                    "name a file that holds at least one global batch of rows");
  }
  return chain;
}

std::unique_ptr<RowSource> rows_in_memory(std::string bytes, RowFormat format, std::string name) {
  return std::make_unique<MemoryRows>(std::move(bytes), format, std::move(name));
}

}  // namespace weft
