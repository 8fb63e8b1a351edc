// cmd/continuation_printer.cpp: a continuation that ends early waits for its turn.
#include "cmd/continuation_printer.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cstdio>

#include "base/json.h"
#include "base/printable.h"
#include "generate/stop_ids.h"

namespace weft {
namespace {

std::string on_one_line(const std::string& text) {
  std::string line;
  for (const char c : text) line += c == '\n' ? "\\n" : c == '\r' ? "\\r" : std::string(1, c);
  return line;
}

}  // namespace

ContinuationPrinter::ContinuationPrinter(const Tokenizer& tokenizer,
                                         const std::vector<std::string>& prompts,
                                         const std::vector<int32_t>& stop_ids,
                                         const std::vector<std::string>& stops,
                                         ContinuationStyle style)
    : tokenizer_(tokenizer),
      prompts_(prompts),
      stop_ids_(stop_ids),
      stops_(stops),
      style_(style),
      is_terminal_(::isatty(STDOUT_FILENO) != 0),
      streams_(style == ContinuationStyle::kText && prompts.size() == 1 && is_terminal_),
      decoder_(tokenizer, true),
      filter_(stops),
      waiting_(prompts.size()) {}

GenerateEvents ContinuationPrinter::events() {
  GenerateEvents made;
  if (streams_) made.on_token = [this](size_t, int32_t id) { stream(id); };
  made.on_end = [this](size_t i, const std::vector<int32_t>& ids) { end(i, ids); };
  return made;
}

void ContinuationPrinter::end(size_t prompt, const std::vector<int32_t>& ids) {
  waiting_[prompt] = ids;
  for (; next_ < waiting_.size() && waiting_[next_]; ++next_) print(next_);
  std::fflush(stdout);
}

void ContinuationPrinter::stream(int32_t id) {
  if (!has_text(id, tokenizer_, stop_ids_)) return;
  fmt::print("{}", shown(filter_.push(decoder_.push(id))));
  std::fflush(stdout);
}

void ContinuationPrinter::print(size_t prompt) {
  const std::vector<int32_t>& ids = *waiting_[prompt];
  if (streams_) {
    const std::string last = filter_.push(decoder_.finish());
    return fmt::print("{}\n", shown(last + filter_.finish()));
  }
  std::string text = before_stop(decode_continuation(ids, tokenizer_, stop_ids_), stops_);
  if (style_ == ContinuationStyle::kJson) {
    const Json::Array list(ids.begin(), ids.end());
    text = Json(Json::Object{{"prompt", prompts_[prompt]}, {"text", text}, {"ids", list}}).dump();
    text = printable_json(text);
  } else if (style_ == ContinuationStyle::kLines) {
    text = on_one_line(text);
  }
  fmt::print("{}\n", shown(text));
}

std::string ContinuationPrinter::shown(std::string text) const {
  return is_terminal_ ? printable(text) : text;
}

}  // namespace weft
