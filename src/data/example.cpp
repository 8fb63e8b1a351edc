// data/example.cpp: templates, tokens, cuts and labels of one row (docs/contract.md, Rows).
#include "data/example.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/byte_size.h"
#include "base/error.h"
#include "data/column_hint.h"

namespace weft {
namespace {

std::optional<int32_t> chosen_eos(const DataConfig& config, const Tokenizer& tokenizer) {
  require(
      config.append_eos == "auto" || config.append_eos == "true" || config.append_eos == "false",
      "data.append_eos: wanted auto, true or false, got {}", config.append_eos);
  if (config.append_eos == "false") return std::nullopt;
  // An assistant's turn has its own end.
  if (config.append_eos == "auto" && config.target.empty()) return std::nullopt;
  const std::optional<int32_t> eos = tokenizer.eos_id();
  require(eos || config.append_eos == "auto",
          "data.append_eos: true, but the tokenizer ({}) has no end-of-sequence token",
          tokenizer.describe());
  return eos;
}

constexpr const char* kToolColumns[] = {"tools", "functions"};

int32_t chosen_pad(const DataConfig& config, const Tokenizer& tokenizer) {
  if (tokenizer.pad_id()) return *tokenizer.pad_id();
  if (tokenizer.eos_id()) return *tokenizer.eos_id();
  require(config.mask_padding,
          "data.mask_padding: false needs a padding or end-of-sequence token, and the tokenizer "
          "({}) has neither",
          tokenizer.describe());
  return 0;  // never used: padding is known by its position
}

// A conversation may also be stored as JSON in a text column.
Json messages_of(const Row::Column& column) {
  try {
    return parse_json(column.text, column.name);
  } catch (const UserError&) {
    if (column.text.starts_with('[')) throw;  // meant as JSON
    throw UserError(
        fmt::format("wanted a list of {{role, content}} in column '{}', got text", column.name),
        "data.messages is for conversations; for plain text set data.text, for prompt and answer "
        "data.source and data.target");
  }
}

// A separate column lists the functions that a conversation may call.
void refuse_tools(const RowSource& rows, int64_t i, const Row& row) {
  for (const char* name : kToolColumns) {
    const Row::Column* tools = row.find(name);
    if (!tools || tools->text.empty() || tools->text == "[]" || tools->text == "null") continue;
    throw UserError(fmt::format("{}: the column '{}' is not supported with data.messages: the "
                                "supported chat templates do not write tools",
                                rows.where(i), name),
                    "remove the column, or write the tools into a system turn");
  }
}

std::string text_or_default(const DataConfig& config) {
  return config.text.empty() ? "{text}" : config.text;
}

// Errors about a row's text begin with the row's position.
template <typename Fn>
void name_row(const RowSource& rows, int64_t i, const Fn& fn) {
  try {
    fn();
  } catch (const UserError& e) {
    throw UserError(fmt::format("{}: {}", rows.where(i), e.what()), e.hint());
  }
}

void check_config(const DataConfig& config, ModelKind kind) {
  require(config.source.empty() == config.target.empty(),
          "data.source and data.target go together, but only {} is given",
          config.source.empty() ? "data.target" : "data.source");
  const int given = !config.text.empty() + !config.target.empty() + !config.messages.empty();
  require(
      given <= 1,
      "data.text, data.source + data.target and data.messages exclude each other: give only one");
  require(config.seq_length >= 2, "data.seq_length: wanted at least 2, got {}", config.seq_length);
  if (kind == ModelKind::kCausal) return;
  require(!config.target.empty(),
          "an encoder-decoder model needs data.source and data.target: its input and its answer");
  require(config.target_length >= 1, "data.target_length: wanted at least 1, got {}",
          config.target_length);
}

}  // namespace

bool Example::has_label() const {
  return std::find(is_label.begin(), is_label.end(), 1) != is_label.end();
}

std::vector<std::string> columns_used(const DataConfig& config) {
  std::vector<std::string> names;
  const auto add = [&names](const std::string& text, const char* what) {
    const TextTemplate parsed(text, what);
    for (const std::string& name : parsed.columns()) {
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
  };
  if (!config.messages.empty()) {
    names.push_back(config.messages);
  } else if (config.target.empty()) {
    add(text_or_default(config), "data.text");
  } else {
    add(config.source, "data.source");
    add(config.target, "data.target");
  }
  return names;
}

std::unique_ptr<RowSource> open_rows_for(const DataConfig& config,
                                         const std::vector<std::string>& paths,
                                         std::string_view what) {
  std::vector<std::string> columns = columns_used(config);
  const size_t most = parse_byte_size(config.max_row_bytes, "data.max_row_bytes");
  auto rows = open_rows(paths, config.format, what, columns, most);
  if (config.messages.empty()) return rows;
  const std::vector<std::string> names = rows->column_names();
  const size_t num_used = columns.size();
  for (const char* name : kToolColumns) {
    if (std::find(names.begin(), names.end(), name) != names.end()) columns.push_back(name);
  }
  if (columns.size() == num_used) return rows;
  Row first;
  rows->read(0, first);  // text rows have all columns; table rows have the requested columns
  if (first.find(columns[num_used])) return rows;
  return open_rows(paths, config.format, what, columns, most);
}

ExampleMaker::ExampleMaker(const DataConfig& config, const Tokenizer& tokenizer, int64_t vocab_size,
                           ModelKind kind)
    : tokenizer_(tokenizer),
      config_(config),
      kind_(kind),
      vocab_size_(vocab_size),
      text_(text_or_default(config), "data.text") {
  check_config(config, kind);
  columns_ = columns_used(config);
  seq_length_ = static_cast<size_t>(config.seq_length);
  eos_ = chosen_eos(config, tokenizer);
  pad_id_ = chosen_pad(config, tokenizer);
  require(pad_id_ < vocab_size,
          "the tokenizer's padding token is {}, but the model's vocabulary has {} ids", pad_id_,
          vocab_size);
  if (!config.target.empty()) {
    source_.emplace(config.source, "data.source");
    target_.emplace(config.target, "data.target");
  }
  if (!config.messages.empty()) chat_.emplace(tokenizer);
  check_lengths();
  if (source_) measure_empty_answer();
}

void ExampleMaker::check_lengths() const {
  // The tokens around a text are kept when it is cut.
  const size_t around = tokenizer_.ids_before().size() + tokenizer_.ids_after().size();
  require(seq_length_ >= around,
          "data.seq_length: {} is too short for the tokenizer's own {} tokens", config_.seq_length,
          around);
  require(kind_ == ModelKind::kCausal || static_cast<size_t>(config_.target_length) >= around,
          "data.target_length: {} is too short for the tokenizer's own {} tokens",
          config_.target_length, around);
}

// Tokens after a conversation are not labels.
std::vector<int32_t> ExampleMaker::end_ids() const {
  if (chat_) return chat_->end_ids();
  return eos_ ? std::vector<int32_t>{*eos_} : std::vector<int32_t>{};
}

void ExampleMaker::measure_empty_answer() {
  Example example;
  if (kind_ == ModelKind::kEncoderDecoder) {
    fill_encoder_decoder("", "", example);
  } else {
    fill_pair("", "", example);
  }
  empty_answer_ = static_cast<int64_t>(example.ids.size()) - example.num_source;
}

std::string ExampleMaker::describe() const {
  const DataConfig& c = config_;
  // cut 2: a causal row keeps the tokens around its text.
  return fmt::format("cut 2\n{}\n{}\n{}\n{}\n{} {} {} {} {} {} {:016x} {}", c.text, c.source,
                     c.target, c.messages, c.seq_length, c.target_length, c.layout == "pack",
                     c.drop_empty, eos_.value_or(-1), static_cast<int>(kind_),
                     tokenizer_.fingerprint(), chat_ ? chat_->known().sha256 : "");
}

std::string ExampleMaker::render(const TextTemplate& text, const RowSource& rows, int64_t i,
                                 const Row& row) const {
  for (const std::string& name : text.columns()) {
    const Row::Column* column = row.find(name);
    if (!column) {
      throw UserError(
          fmt::format("{}: there is no column '{}'; there are: {}", rows.where(i), name,
                      fmt::join(row.names(), ", ")),
          column_hint(config_, name, row.names()) + header_remark(rows, i, config_.format));
    }
    // where() may count lines from the start of the file: call it only for a bad row.
    if (column->kind == Row::Kind::kNested) {
      throw UserError(fmt::format("{}: column '{}' is a list or an object; a template needs text",
                                  rows.where(i), name),
                      column->text.starts_with("[{")
                          ? fmt::format("chat rows: set data.messages: {}", name)
                          : "");
    }
  }
  return text.render([&row](std::string_view name) -> std::optional<std::string_view> {
    return row.find(name)->text;
  });
}

std::string ExampleMaker::prompt(const RowSource& rows, int64_t i, const Row& row) const {
  return source_ ? render(*source_, rows, i, row) : "";
}

std::string ExampleMaker::answer(const RowSource& rows, int64_t i, const Row& row) const {
  return render(target_ ? *target_ : text_, rows, i, row);
}

void ExampleMaker::check_ids(const RowSource& rows, int64_t i,
                             const std::vector<int32_t>& ids) const {
  for (const int32_t id : ids) {
    if (id < vocab_size_) continue;
    throw UserError(fmt::format("{}: token id {}, but the model's vocabulary has {} ids",
                                rows.where(i), id, vocab_size_),
                    "the tokenizer does not match the model; see data.tokenizer");
  }
}

void ExampleMaker::count_nulls(const Row& row, Example& out) const {
  for (const std::string& name : columns_) {
    const Row::Column* column = row.find(name);
    out.num_nulls += column && column->kind == Row::Kind::kNull;
  }
}

void ExampleMaker::fill_chat(const RowSource& rows, int64_t i, const Row& row, Example& out) const {
  const Row::Column* column = row.find(config_.messages);
  if (!column) {
    throw UserError(fmt::format("{}: there is no column '{}'; there are: {}", rows.where(i),
                                config_.messages, fmt::join(row.names(), ", ")),
                    column_hint(config_, config_.messages, row.names()) +
                        header_remark(rows, i, config_.format));
  }
  refuse_tools(rows, i, row);
  if (column->kind == Row::Kind::kNull) return;
  name_row(rows, i,
           [&] { chat_->encode(messages_of(*column), config_.messages, out.ids, out.is_label); });
  if (eos_ && !out.ids.empty() && out.ids.back() != *eos_) {
    out.ids.push_back(*eos_);
    out.is_label.push_back(0);
  }
}

void ExampleMaker::fill_text(const std::string& text, Example& out) const {
  tokenizer_.encode(text, /*add_special=*/true, out.ids);
  if (eos_ && (out.ids.empty() || out.ids.back() != *eos_)) out.ids.push_back(*eos_);
  out.is_label.assign(out.ids.size(), 1);
}

// Source and target are tokenized separately, so that the target's tokens do not depend on the
// source.
void ExampleMaker::fill_pair(const std::string& source, const std::string& target,
                             Example& out) const {
  tokenizer_.encode(source, /*add_special=*/true, out.ids);
  const size_t num_source = out.ids.size();
  tokenizer_.encode(target, /*add_special=*/false, out.ids);
  const bool ends = out.ids.size() > num_source && eos_ && out.ids.back() == *eos_;
  if (eos_ && !ends) out.ids.push_back(*eos_);
  out.num_source = static_cast<int64_t>(num_source);
  out.is_label.assign(num_source, 0);
  out.is_label.resize(out.ids.size(), 1);
}

// Cuts text on the right to `length` ids, keeping the tokens that the tokenizer adds around it.
// Returns whether it was cut.
bool ExampleMaker::put_closed(const std::string& text, size_t length,
                              std::vector<int32_t>& ids) const {
  const auto before = tokenizer_.ids_before(), after = tokenizer_.ids_after();
  const size_t around = before.size() + after.size();
  const size_t begin = ids.size();
  ids.insert(ids.end(), before.begin(), before.end());
  tokenizer_.encode(text, /*add_special=*/false, ids);
  const size_t room = begin + before.size() + (length > around ? length - around : 0);
  const bool cut = ids.size() > room;
  if (cut) ids.resize(room);
  ids.insert(ids.end(), after.begin(), after.end());
  return cut;
}

void ExampleMaker::fill_encoder_decoder(const std::string& source, const std::string& target,
                                        Example& out) const {
  out.source_cut = put_closed(source, seq_length_, out.ids);
  out.num_source = static_cast<int64_t>(out.ids.size());
  const auto length = static_cast<size_t>(config_.target_length);
  out.target_cut = put_closed(target, length, out.ids);
  const size_t num_target = out.ids.size() - static_cast<size_t>(out.num_source);
  if (eos_ && (num_target == 0 || out.ids.back() != *eos_)) {
    if (num_target >= length) {
      out.ids.pop_back();
      out.target_cut = true;
    }
    out.ids.push_back(*eos_);
  }
  out.truncated = out.source_cut || out.target_cut;
  out.is_label.assign(static_cast<size_t>(out.num_source), 0);
  out.is_label.resize(out.ids.size(), 1);
}

// Truncates a row that is too long: first the beginning of the source, then the end of the target
// or of plain text. Tokens that the tokenizer adds around a text are kept; conversations have none.
// A packed row is split later.
void ExampleMaker::cut(Example& out) const {
  if (config_.layout == "pack" || out.ids.size() <= seq_length_) return;
  out.truncated = true;
  const auto before = tokenizer_.ids_before(), after = tokenizer_.ids_after();
  if (source_) {
    const auto num_source = static_cast<size_t>(out.num_source);
    const size_t room = num_source - before.size() - after.size();
    const size_t from_source = std::min(room, out.ids.size() - seq_length_);
    out.source_cut = from_source > 0;
    out.target_cut = out.ids.size() - from_source > seq_length_;
    const auto begin = static_cast<int64_t>(before.size());
    const auto end = begin + static_cast<int64_t>(from_source);
    out.ids.erase(out.ids.begin() + begin, out.ids.begin() + end);
    out.is_label.erase(out.is_label.begin() + begin, out.is_label.begin() + end);
    out.num_source -= static_cast<int64_t>(from_source);
  }
  out.ids.resize(seq_length_);
  out.is_label.resize(seq_length_);
  if (source_ || chat_) return;
  std::copy(after.begin(), after.end(), out.ids.end() - static_cast<int64_t>(after.size()));
}

bool ExampleMaker::make(const RowSource& rows, int64_t i, const Row& row, Example& out) const {
  out.ids.clear();
  out.is_label.clear();
  out.num_source = out.num_nulls = 0;
  out.truncated = out.source_cut = out.target_cut = false;
  count_nulls(row, out);
  if (kind_ == ModelKind::kEncoderDecoder) {
    const std::string target = answer(rows, i, row);
    const std::string source = prompt(rows, i, row);
    name_row(rows, i, [&] { fill_encoder_decoder(source, target, out); });
    check_ids(rows, i, out.ids);
    return !config_.drop_empty || !target.empty();
  }
  if (chat_) {
    fill_chat(rows, i, row, out);
  } else if (source_) {
    const std::string source = prompt(rows, i, row), target = answer(rows, i, row);
    name_row(rows, i, [&] { fill_pair(source, target, out); });
  } else {
    const std::string text = answer(rows, i, row);
    name_row(rows, i, [&] { fill_text(text, out); });
  }
  cut(out);
  if (!out.is_label.empty()) out.is_label[0] = 0;
  check_ids(rows, i, out.ids);
  return !config_.drop_empty || out.ids.size() > 1;
}

}  // namespace weft
