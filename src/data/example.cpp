// data/example.cpp: templates, tokens, cuts and labels of one row (DESIGN 1.3, Rows).
#include "data/example.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"

namespace weft {
namespace {

// A text longer than this is taken for more than one token once its beginning is: no vocabulary
// that we know has a token half as long (the longest of GPT-2 and Qwen2 have 128 bytes).
constexpr size_t kPrefixBytes = 256;

std::optional<int32_t> chosen_eos(const DataConfig& config, const Tokenizer& tokenizer) {
  const bool has_target = !config.target.empty();
  require(
      config.append_eos == "auto" || config.append_eos == "true" || config.append_eos == "false",
      "data.append_eos: wanted auto, true or false, got {}", config.append_eos);
  if (config.append_eos == "false") return std::nullopt;
  if (config.append_eos == "auto" && !has_target) return std::nullopt;
  const std::optional<int32_t> eos = tokenizer.eos_id();
  require(eos || config.append_eos == "auto",
          "data.append_eos: true, but the tokenizer ({}) has no end-of-sequence token",
          tokenizer.describe());
  return eos;
}

int32_t chosen_pad(const DataConfig& config, const Tokenizer& tokenizer) {
  if (tokenizer.pad_id()) return *tokenizer.pad_id();
  if (tokenizer.eos_id()) return *tokenizer.eos_id();
  require(config.mask_padding,
          "data.mask_padding: false needs a padding or end-of-sequence token, and the tokenizer "
          "({}) has neither",
          tokenizer.describe());
  return 0;  // never seen: padding is known by its position
}

std::string text_or_default(const DataConfig& config) {
  return config.text.empty() ? "{text}" : config.text;
}

void check_config(const DataConfig& config) {
  require(config.messages.empty(), "data.messages: chat rows are not built");
  require(config.layout == "pad", "data.layout: {} is not built; this build has pad",
          config.layout);
  require(config.source.empty() == config.target.empty(),
          "data.source and data.target go together, but only {} is given",
          config.source.empty() ? "data.target" : "data.source");
  require(config.text.empty() || config.target.empty(),
          "data.text and data.source + data.target exclude each other");
  require(config.seq_length >= 2, "data.seq_length: wanted at least 2, got {}", config.seq_length);
}

}  // namespace

std::vector<std::string> columns_used(const DataConfig& config) {
  std::vector<std::string> names;
  const auto add = [&names](const std::string& text, const char* what) {
    const TextTemplate parsed(text, what);
    for (const std::string& name : parsed.columns()) {
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
  };
  if (config.target.empty()) {
    add(text_or_default(config), "data.text");
  } else {
    add(config.source, "data.source");
    add(config.target, "data.target");
  }
  return names;
}

ExampleMaker::ExampleMaker(const DataConfig& config, const Tokenizer& tokenizer, int64_t vocab_size)
    : tokenizer_(tokenizer),
      vocab_size_(vocab_size),
      drop_empty_(config.drop_empty),
      text_(text_or_default(config), "data.text") {
  check_config(config);
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
}

std::string ExampleMaker::render(const TextTemplate& text, const RowSource& rows, int64_t i,
                                 const Row& row) const {
  for (const std::string& name : text.columns()) {
    const Row::Column* column = row.find(name);
    if (!column) {
      throw UserError(fmt::format("{}: there is no column '{}'; there are: {}", rows.where(i), name,
                                  fmt::join(row.names(), ", ")),
                      "set data.text, or data.source and data.target, to the columns of the data");
    }
    // where() counts lines from the start of the file: only a bad row may ask it.
    if (column->kind == Row::Kind::kNested) {
      throw UserError(fmt::format("{}: column '{}' is a list or an object; a template takes text",
                                  rows.where(i), name));
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
                    "the tokenizer and the model do not belong together; see data.tokenizer");
  }
}

// Source and target stand apart in the tokenizer, so that the target's tokens do not depend on
// the source. Too long together: the source loses its beginning, then the target its end.
void ExampleMaker::fill(const std::string& source, const std::string& target, Example& out) const {
  out.ids.clear();
  if (source_) tokenizer_.encode(source, /*add_special=*/true, out.ids);
  size_t num_source = out.ids.size();
  tokenizer_.encode(target, /*add_special=*/!source_, out.ids);
  const bool ends = out.ids.size() > num_source && eos_ && out.ids.back() == *eos_;
  if (eos_ && !ends) out.ids.push_back(*eos_);
  out.truncated = out.ids.size() > seq_length_;
  if (out.truncated) {
    const size_t cut = std::min(num_source, out.ids.size() - seq_length_);
    out.ids.erase(out.ids.begin(), out.ids.begin() + static_cast<int64_t>(cut));
    num_source -= cut;
    out.ids.resize(seq_length_);
  }
  out.num_source = static_cast<int64_t>(num_source);
  out.first_label = std::max<int64_t>(1, out.num_source);
}

bool ExampleMaker::make(const RowSource& rows, int64_t i, const Row& row, Example& out) const {
  fill(prompt(rows, i, row), answer(rows, i, row), out);
  check_ids(rows, i, out.ids);
  return !drop_empty_ || out.ids.size() > 1;
}

bool ExampleMaker::is_kept(const RowSource& rows, int64_t i, const Row& row) const {
  if (!drop_empty_) return true;
  std::string text = prompt(rows, i, row) + answer(rows, i, row);
  std::vector<int32_t> ids;
  if (text.size() > kPrefixBytes) {
    std::string beginning = text.substr(0, kPrefixBytes);
    repair_utf8(beginning);  // the cut may have gone through a character
    tokenizer_.encode(beginning, false, ids);
    if (ids.size() > 1) return true;
  }
  Example example;
  fill(prompt(rows, i, row), answer(rows, i, row), example);
  return example.ids.size() > 1;
}

}  // namespace weft
