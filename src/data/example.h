// data/example.h: a row becomes tokens, and which of them are labels.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/config.h"
#include "data/rows.h"
#include "text/template.h"
#include "text/tokenizer.h"

namespace weft {

// Tokens from first_label on are labels: each is the target of the position before it. The first
// token of a row has no position before it, so first_label is at least 1.
struct Example {
  std::vector<int32_t> ids;
  int64_t num_source = 0;  // the first ids: what the cut has left of the prompt
  int64_t first_label = 1;
  bool truncated = false;
};

// The columns that the templates name, each once.
std::vector<std::string> columns_used(const DataConfig& config);

class ExampleMaker {
 public:
  // vocab_size: the model's; a token beyond it is a UserError that names row and id. UserError for
  // what the configuration contradicts, or what is not built.
  ExampleMaker(const DataConfig& config, const Tokenizer& tokenizer, int64_t vocab_size);

  // False where the row is dropped (drop_empty). `where` of the source names the row in errors.
  bool make(const RowSource& rows, int64_t i, const Row& row, Example& out) const;
  // The answer of make(), without tokenizing long rows to their end.
  bool is_kept(const RowSource& rows, int64_t i, const Row& row) const;

  int32_t pad_id() const { return pad_id_; }

  // The two halves as text, for generation and exact match; prompt is empty for plain text.
  std::string prompt(const RowSource& rows, int64_t i, const Row& row) const;
  std::string answer(const RowSource& rows, int64_t i, const Row& row) const;
  bool has_target() const { return target_.has_value(); }

 private:
  std::string render(const TextTemplate& text, const RowSource& rows, int64_t i,
                     const Row& row) const;
  void fill(const std::string& source, const std::string& target, Example& out) const;
  void check_ids(const RowSource& rows, int64_t i, const std::vector<int32_t>& ids) const;

  const Tokenizer& tokenizer_;
  int64_t vocab_size_;
  size_t seq_length_;
  bool drop_empty_;
  std::optional<int32_t> eos_;  // appended where set
  int32_t pad_id_;
  std::optional<TextTemplate> source_;
  std::optional<TextTemplate> target_;
  TextTemplate text_;
};

}  // namespace weft
