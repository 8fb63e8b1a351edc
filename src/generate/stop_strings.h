// generate/stop_strings.h: texts that end a continuation before them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "text/stream_decoder.h"

namespace weft {

// Passes text on up to the stop string that is complete first, of several that end there the
// longest. What may be the begin of one is held back until it is known.
class StopFilter {
 public:
  explicit StopFilter(const std::vector<std::string>& stops) : stops_(stops) {}

  std::string push(const std::string& text);  // what is certain to come before a stop string
  std::string finish();                       // what was held back, where nothing follows
  bool is_stopped() const { return is_stopped_; }

 private:
  const std::vector<std::string>& stops_;
  std::string held_;
  bool is_stopped_ = false;
};

// The text before the first stop string; all of it where there is none.
std::string before_stop(const std::string& text, const std::vector<std::string>& stops);

// Watches the continuations of several prompts as their tokens arrive.
class StopStrings {
 public:
  // What it refers to must outlive it.
  StopStrings(const Tokenizer& tokenizer, const std::vector<int32_t>& stop_ids,
              const std::vector<std::string>& stops, size_t num_prompts);
  // Whether the continuation contains a stop string with this token, its next one.
  bool ends(size_t prompt, int32_t id);

 private:
  struct Row {
    StreamDecoder decoder;
    StopFilter filter;
  };
  const Tokenizer& tokenizer_;
  const std::vector<int32_t>& stop_ids_;
  std::vector<Row> rows_;
};

}  // namespace weft
