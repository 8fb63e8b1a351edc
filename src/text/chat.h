// text/chat.h: a conversation as tokens, and which of them are the assistant's.
//
// ChatML, as Qwen2.5's chat template writes it: <|im_start|>role, a line end, the content,
// <|im_end|> and a line end, turn by turn. Labels are the assistant's content and the <|im_end|>
// that ends it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "text/tokenizer.h"

namespace weft {

class ChatTemplate {
 public:
  // The template of the tokenizer's files; none: plain ChatML. UserError where the tokenizer lacks
  // ChatML's tokens, or its template is not ChatML.
  explicit ChatTemplate(const Tokenizer& tokenizer);

  // Appends the tokens of [{role, content}, ...]. UserError naming `where` and what is wrong.
  void encode(const Json& messages, std::string_view where, std::vector<int32_t>& ids,
              std::vector<uint8_t>& is_label) const;
  // The tokens that end a turn of the assistant, each a label.
  std::vector<int32_t> end_ids() const { return {end_id_}; }

 private:
  void put_turn(std::string_view role, std::string_view content, std::vector<int32_t>& ids,
                std::vector<uint8_t>& is_label) const;

  const Tokenizer& tokenizer_;
  int32_t end_id_ = -1;
  std::string default_system_;  // added where the first turn is not a system turn; empty: none
  bool skip_empty_ = false;     // an assistant's turn without content is left out
};

}  // namespace weft
