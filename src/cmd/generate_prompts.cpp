// cmd/generate_prompts.cpp: reads, splits and encodes prompts.
#include "cmd/generate_prompts.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "cmd/text_input.h"

namespace weft {
namespace {

std::vector<std::string> split_lines(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const size_t size = end - begin - (end > begin && text[end - 1] == '\r' ? 1 : 0);
    lines.push_back(text.substr(begin, size));
    begin = end + 1;
  }
  return lines;
}

// How the user can find prompt i: lines count from 1, as in editors.
std::string name_prompt(const PromptOptions& options, size_t i) {
  if (!options.file.empty()) return fmt::format("{}:{}", options.file, i + 1);
  return options.prompt ? "--prompt" : "the prompt on standard input";
}

std::vector<int32_t> encode_prompt(const Tokenizer& tokenizer, const std::string& text,
                                   const std::string& name, const Model& model) {
  std::vector<int32_t> ids;
  tokenizer.encode(text, true, ids);
  if (ids.empty() && tokenizer.bos_id()) ids.push_back(*tokenizer.bos_id());
  if (ids.empty()) {
    throw UserError(fmt::format("{} is empty, and this tokenizer has no bos token", name),
                    "give a prompt of at least one character");
  }
  const auto size = static_cast<int64_t>(ids.size());
  if (reads_source(model) || size <= model.max_positions()) return ids;
  throw UserError(fmt::format("{} has {} tokens, but the model has only {} positions", name, size,
                              model.max_positions()),
                  fmt::format("shorten the prompt, or {}", model.way_to_more_positions()));
}

}  // namespace

std::vector<std::string> read_prompts(const PromptOptions& options) {
  if (options.prompt) return {repaired(*options.prompt, "--prompt")};
  if (!options.file.empty()) {
    std::vector<std::string> lines = split_lines(read_text_input(options.file));
    require(!lines.empty(), "no prompts in {}: wanted one per line", options.file);
    return lines;
  }
  if (::isatty(STDIN_FILENO)) {
    throw UserError("no prompt was given",
                    "give --prompt TEXT or --prompts FILE, or write it to standard input");
  }
  std::string text = read_standard_input();
  if (text.ends_with('\n')) text.pop_back();  // from the shell, not part of the prompt
  return {text};
}

std::vector<std::vector<int32_t>> encode_prompts(const PromptOptions& options,
                                                 const std::vector<std::string>& prompts,
                                                 const Tokenizer& tokenizer, const Model& model) {
  std::vector<std::vector<int32_t>> ids;
  for (size_t i = 0; i < prompts.size(); ++i) {
    ids.push_back(encode_prompt(tokenizer, prompts[i], name_prompt(options, i), model));
  }
  return ids;
}

void check_ids(const PromptOptions& options, const std::vector<std::vector<int32_t>>& ids,
               int64_t vocab_size) {
  for (size_t i = 0; i < ids.size(); ++i) {
    for (const int32_t id : ids[i]) {
      if (id < vocab_size) continue;
      throw UserError(fmt::format("{}: token id {}, but the model's vocabulary has {} ids",
                                  name_prompt(options, i), id, vocab_size),
                      "the tokenizer does not match the model; see --tokenizer");
    }
  }
}

PromptFile::PromptFile(const std::string& prompt)
    : fd_(::memfd_create("weft-prompt", MFD_CLOEXEC)) {
  const std::string text = prompt + "\n";  // which read_prompts takes away
  for (size_t at = 0; at < text.size();) {
    const ssize_t n = fd_ < 0 ? -1 : ::write(fd_, text.data() + at, text.size() - at);
    if (n < 0) {
      const int reason = errno;
      if (fd_ >= 0) ::close(fd_);
      throw RunError(
          fmt::format("cannot keep the prompt for the ranks: {}", std::strerror(reason)));
    }
    at += static_cast<size_t>(n);
  }
}

PromptFile::~PromptFile() { ::close(fd_); }

std::string PromptFile::path() const { return fmt::format("/proc/self/fd/{}", fd_); }

}  // namespace weft
