// cmd/text_input.cpp: what users give as text is repaired, and said so.
#include "cmd/text_input.h"

#include <cstdio>
#include <filesystem>
#include <system_error>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/logical.h"

namespace weft {
namespace {

// A folder of tokenizer files alone is no model, so it is looked at before models are.
bool has_tokenizer_files(const std::filesystem::path& folder) {
  return std::filesystem::exists(folder / "tokenizer.json") ||
         std::filesystem::exists(folder / "vocab.json");
}

}  // namespace

std::unique_ptr<Tokenizer> open_tokenizer(const std::string& name) {
  if (name == "bytes") return make_bytes_tokenizer();
  if (has_tokenizer_files(name)) return load_tokenizer(name);
  if (!std::filesystem::is_directory(name) ||
      std::filesystem::is_directory(std::filesystem::path(name) / "checkpoints")) {
    return load_tokenizer(resolve_model_source(name));
  }
  return load_tokenizer(name);
}

std::string repaired(std::string text, const std::string& what) {
  if (repair_utf8(text)) log_warning("{} is not all UTF-8: bad bytes became U+FFFD", what);
  return text;
}

std::string read_standard_input() {
  std::string text;
  char piece[1 << 16];
  for (size_t n; (n = std::fread(piece, 1, sizeof piece, stdin)) > 0;) text.append(piece, n);
  if (std::ferror(stdin) != 0) {
    throw UserError("standard input cannot be read");
  }
  return repaired(std::move(text), "standard input");
}

}  // namespace weft
