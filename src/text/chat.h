// text/chat.h: a conversation as tokens, and which of them are the assistant's.
//
// ChatML, as the known templates write it (known_templates.h): <|im_start|>role, a line end, the
// content, <|im_end|> and a line end, turn by turn. Labels are the assistant's content and the
// <|im_end|> that ends it, except in turns with "weight": 0.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "text/known_templates.h"
#include "text/tokenizer.h"

namespace weft {

class ChatTemplate {
 public:
  // The template of the tokenizer's files; none: plain ChatML. UserError where the tokenizer lacks
  // ChatML's tokens, or its template is not a known one.
  explicit ChatTemplate(const Tokenizer& tokenizer);

  // Appends the tokens of [{role, content}, ...]. UserError naming `where` and what is wrong.
  void encode(const Json& messages, std::string_view where, std::vector<int32_t>& ids,
              std::vector<uint8_t>& is_label) const;
  // The tokens that end a turn of the assistant, each a label.
  std::vector<int32_t> end_ids() const { return {end_id_}; }
  const KnownTemplate& known() const { return known_; }

 private:
  void put_turn(std::string_view role, std::string_view content, bool learned,
                std::vector<int32_t>& ids, std::vector<uint8_t>& is_label) const;

  const Tokenizer& tokenizer_;
  int32_t end_id_ = -1;
  const KnownTemplate& known_;
};

}  // namespace weft
