// data/example.h: a row becomes tokens, and which of them are labels.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/config.h"
#include "data/rows.h"
#include "text/chat.h"
#include "text/template.h"
#include "text/tokenizer.h"

namespace weft {

// Causal: a label is the target of the position before it, so the first token is never one.
// Encoder-decoder: the first num_source ids are the encoder's, the rest the decoder's, all labels.
struct Example {
  std::vector<int32_t> ids;
  std::vector<uint8_t> is_label;  // of each id
  int64_t num_source = 0;         // the first ids: what remains of the prompt after the cut
  bool truncated = false;
  bool source_cut = false, target_cut = false;  // which part, of a row that has both
  int32_t num_nulls = 0;                        // cells that were null, taken as empty

  bool has_label() const;
};

// Opens the rows with the columns that the configuration uses. A table's `tools` column is read
// too, because the tools of a conversation must not be dropped silently.
std::unique_ptr<RowSource> open_rows_for(const DataConfig& config,
                                         const std::vector<std::string>& paths,
                                         std::string_view what);

enum class ModelKind { kCausal, kEncoderDecoder };

// The columns that the configuration uses, each once.
std::vector<std::string> columns_used(const DataConfig& config);

class ExampleMaker {
 public:
  // vocab_size: the model's; a token beyond it is a UserError that names row and id. UserError for
  // contradictory or unbuilt configurations.
  ExampleMaker(const DataConfig& config, const Tokenizer& tokenizer, int64_t vocab_size,
               ModelKind kind = ModelKind::kCausal);

  // False where the row is dropped (drop_empty). `where` of the source names the row in errors.
  // Thread-safe.
  bool make(const RowSource& rows, int64_t i, const Row& row, Example& out) const;

  int32_t pad_id() const { return pad_id_; }
  // The tokens that end a label sequence; none: plain text, which has no end.
  std::vector<int32_t> end_ids() const;
  // Everything besides the rows that make()'s result depends on, as one string.
  std::string describe() const;

  // The two halves as text, for generation and exact match; prompt is empty for plain text.
  std::string prompt(const RowSource& rows, int64_t i, const Row& row) const;
  std::string answer(const RowSource& rows, int64_t i, const Row& row) const;
  bool has_target() const { return target_.has_value(); }
  // Whether a row with this many tokens after its prompt has only the closing tokens of an answer.
  bool is_unanswered(int64_t num_target) const {
    return has_target() && num_target <= empty_answer_;
  }

 private:
  std::string render(const TextTemplate& text, const RowSource& rows, int64_t i,
                     const Row& row) const;
  void fill_chat(const RowSource& rows, int64_t i, const Row& row, Example& out) const;
  void fill_text(const std::string& text, Example& out) const;
  void fill_pair(const std::string& source, const std::string& target, Example& out) const;
  void fill_encoder_decoder(const std::string& source, const std::string& target,
                            Example& out) const;
  bool put_closed(const std::string& text, size_t length, std::vector<int32_t>& ids) const;
  void cut(Example& out) const;
  void check_lengths() const;
  void measure_empty_answer();
  void count_nulls(const Row& row, Example& out) const;
  void check_ids(const RowSource& rows, int64_t i, const std::vector<int32_t>& ids) const;

  const Tokenizer& tokenizer_;
  DataConfig config_;
  ModelKind kind_;
  int64_t vocab_size_;
  size_t seq_length_;
  std::optional<int32_t> eos_;  // appended where set
  int32_t pad_id_;
  int64_t empty_answer_ = 0;  // number of its tokens
  std::vector<std::string> columns_;
  std::optional<TextTemplate> source_;
  std::optional<TextTemplate> target_;
  std::optional<ChatTemplate> chat_;
  TextTemplate text_;
};

}  // namespace weft
