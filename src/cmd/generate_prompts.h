// cmd/generate_prompts.h: the prompts of `weft generate`, as text and as tokens.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/model.h"
#include "text/tokenizer.h"

namespace weft {

struct PromptOptions {
  std::optional<std::string> prompt;  // --prompt
  std::string file;                   // --prompts
  bool is_standard_input() const { return !prompt && file.empty(); }
};

// One of --prompt or of standard input, or one per line of the file.
std::vector<std::string> read_prompts(const PromptOptions& options);

// UserError naming the prompt that is empty or has more tokens than a decoder has positions.
std::vector<std::vector<int32_t>> encode_prompts(const PromptOptions& options,
                                                 const std::vector<std::string>& prompts,
                                                 const Tokenizer& tokenizer, const Model& model);

// UserError naming a prompt with an id that the model does not have.
void check_ids(const PromptOptions& options, const std::vector<std::vector<int32_t>>& ids,
               int64_t vocab_size);

// The text that was read, as a file for the standard input of every rank. As an argument it would
// be limited by the system (128 KiB), and `ps` would show it.
class PromptFile {
 public:
  explicit PromptFile(const std::string& prompt);
  ~PromptFile();
  PromptFile(const PromptFile&) = delete;
  PromptFile& operator=(const PromptFile&) = delete;
  std::string path() const;  // for this process, as long as the object lives

 private:
  int fd_;
};

}  // namespace weft
