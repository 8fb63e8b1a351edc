// cmd/inspect_tokenizer.cpp: tokenizer files: a folder of them, or one given by name.
#include "base/file.h"
#include "cmd/inspect.h"
#include "text/tokenizer.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxFileBytes = size_t{1} << 28;

Json describe_tokenizer(const Tokenizer& tokenizer, const std::string& kind, const fs::path& path) {
  Json out;
  out.set("kind", kind);
  out.set("path", path.string());
  out.set("description", tokenizer.describe());
  out.set("num_ids", tokenizer.num_ids());
  for (const auto& [key, id] : {std::pair{"eos_id", tokenizer.eos_id()},
                                {"bos_id", tokenizer.bos_id()},
                                {"pad_id", tokenizer.pad_id()}}) {
    if (id) out.set(key, *id);
  }
  return out;
}

// The files that form a tokenizer together with this one; none: it is not a tokenizer file.
std::vector<std::string> files_with(const fs::path& file) {
  const std::string name = file.filename().string();
  if (name == "tokenizer.json" || name == "spiece.model") return {name};
  const bool is_half = name == "vocab.json" || name == "merges.txt";
  const fs::path folder = file.parent_path();
  if (is_half && fs::exists(folder / "vocab.json") && fs::exists(folder / "merges.txt")) {
    return {"vocab.json", "merges.txt"};
  }
  return {};
}

}  // namespace

bool is_tokenizer_file(const fs::path& path) {
  return fs::is_regular_file(path) && !files_with(path).empty();
}

Json inspect_tokenizer(const fs::path& path) {
  if (fs::is_directory(path)) return describe_tokenizer(*load_tokenizer(path), "tokenizer", path);
  // Neighbouring files may be another tokenizer's: read only those that configure this one.
  std::vector<std::string> names = files_with(path);
  for (const char* more : {"tokenizer_config.json", "special_tokens_map.json"}) {
    if (fs::exists(path.parent_path() / more)) names.emplace_back(more);
  }
  std::map<std::string, std::string> files;
  for (const std::string& name : names) {
    files[name] = read_file(path.parent_path() / name, kMaxFileBytes);
  }
  const auto tokenizer = load_tokenizer_files(std::move(files), path.parent_path().string());
  return describe_tokenizer(*tokenizer, "tokenizer of " + path.filename().string(), path);
}

}  // namespace weft
