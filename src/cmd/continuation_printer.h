// cmd/continuation_printer.h: continuations on standard output, in the order of their prompts.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "generate/generator.h"
#include "generate/stop_strings.h"
#include "text/stream_decoder.h"

namespace weft {

enum class ContinuationStyle {
  kText,   // raw text; streamed for a single prompt on a terminal
  kLines,  // one line each: a newline inside is written \n, a carriage return \r
  kJson,   // {"prompt", "text", "ids"}
};

// On a terminal control characters are escaped as \xNN; a pipe gets the raw text. Each is printed
// as soon as those before it are. Stop tokens and stop strings are in the ids, not in the text.
class ContinuationPrinter {
 public:
  ContinuationPrinter(const Tokenizer& tokenizer, const std::vector<std::string>& prompts,
                      const std::vector<int32_t>& stop_ids, const std::vector<std::string>& stops,
                      ContinuationStyle style);
  GenerateEvents events();  // they refer to the printer
  void end(size_t prompt, const std::vector<int32_t>& ids);

 private:
  void stream(int32_t id);
  void print(size_t prompt);
  std::string shown(std::string text) const;

  const Tokenizer& tokenizer_;
  const std::vector<std::string>& prompts_;
  const std::vector<int32_t>& stop_ids_;
  const std::vector<std::string>& stops_;
  ContinuationStyle style_;
  bool is_terminal_, streams_;
  StreamDecoder decoder_;
  StopFilter filter_;
  std::vector<std::optional<std::vector<int32_t>>> waiting_;
  size_t next_ = 0;
};

}  // namespace weft
