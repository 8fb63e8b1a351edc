// cmd/text_input.cpp: repairs users' text, with a warning.
#include "cmd/text_input.h"

#include <cstdio>
#include <filesystem>
#include <system_error>

#include "base/error.h"
#include "base/log.h"

namespace weft {
namespace {

// A folder with only tokenizer files is not a model, so it is checked first.
bool has_tokenizer_files(const std::filesystem::path& folder) {
  return std::filesystem::exists(folder / "tokenizer.json") ||
         std::filesystem::exists(folder / "vocab.json") ||
         std::filesystem::exists(folder / "spiece.model");
}

[[noreturn]] void refuse_no_tokenizer(const std::filesystem::path& folder,
                                      const std::string& hint) {
  throw UserError(fmt::format("{} has no tokenizer: neither tokenizer.json nor vocab.json with "
                              "merges.txt, nor spiece.model",
                              folder.string()),
                  hint);
}

std::unique_ptr<Tokenizer> load_from(const std::filesystem::path& folder, const std::string& hint) {
  if (std::filesystem::is_directory(folder) && !has_tokenizer_files(folder))
    refuse_no_tokenizer(folder, hint);
  return load_tokenizer(folder);
}

}  // namespace

std::unique_ptr<Tokenizer> open_tokenizer(const std::string& name, const std::string& hint) {
  if (name == "bytes") return make_bytes_tokenizer();
  if (has_tokenizer_files(name)) return load_tokenizer(name);
  if (!std::filesystem::is_directory(name) ||
      std::filesystem::is_directory(std::filesystem::path(name) / "checkpoints")) {
    return load_from(resolve_model_source(name), hint);
  }
  return load_from(name, hint);
}

std::unique_ptr<Tokenizer> tokenizer_beside(const LogicalModel& model, const std::string& hint) {
  auto files = read_side_files(model);
  if (!files.contains("tokenizer.json") && !files.contains("vocab.json") &&
      !files.contains("spiece.model")) {
    refuse_no_tokenizer(model.path, hint);
  }
  return load_tokenizer_files(std::move(files), model.path.string());
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
