// cmd/text_input.cpp: repairs users' text, with a warning.
#include "cmd/text_input.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/path.h"

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

namespace {

std::string read_to_end(std::FILE* file, const std::string& what) {
  std::string text;
  char piece[1 << 16];
  for (size_t n; (n = std::fread(piece, 1, sizeof piece, file)) > 0;) text.append(piece, n);
  if (std::ferror(file) != 0) throw UserError(what + " cannot be read");
  return text;
}

}  // namespace

std::string read_standard_input() {
  return repaired(read_to_end(stdin, "standard input"), "standard input");
}

std::string read_text_input(const std::string& path) {
  if (path_kind(path) != PathKind::kOther) return repaired(read_file(path), path);
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rbe"),
                                                             &std::fclose);
  if (!file) throw UserError(fmt::format("cannot open {}: {}", path, std::strerror(errno)));
  return repaired(read_to_end(file.get(), path), path);
}

}  // namespace weft
