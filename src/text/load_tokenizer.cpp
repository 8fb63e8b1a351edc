// text/load_tokenizer.cpp: which files make a tokenizer, and in which order they are read.
#include <fmt/core.h>

#include "base/error.h"
#include "base/file.h"
#include "text/bpe_tokenizer.h"

namespace weft {
namespace {

// All that transformers may read, so that a copy of these is a copy of the tokenizer.
constexpr const char* kFiles[] = {
    "tokenizer.json",          "vocab.json",        "merges.txt",         "tokenizer_config.json",
    "special_tokens_map.json", "added_tokens.json", "chat_template.jinja"};
constexpr size_t kMaxFileBytes = size_t{1} << 28;

}  // namespace

std::unique_ptr<Tokenizer> load_tokenizer_files(std::map<std::string, std::string> files,
                                                std::string_view where_view) {
  const std::string where(where_view);
  const auto json = [&](const std::string& name) {
    const auto found = files.find(name);
    return found == files.end() ? Json() : parse_json(found->second, where + "/" + name);
  };
  const ConfigFiles config{json("tokenizer_config.json"), json("special_tokens_map.json"),
                           json("added_tokens.json")};
  TokenizerParts parts;
  const bool has_tokenizer_json = files.count("tokenizer.json") > 0;
  if (has_tokenizer_json) {
    read_tokenizer_json(files["tokenizer.json"], where + "/tokenizer.json", parts);
  } else if (files.count("vocab.json") && files.count("merges.txt")) {
    read_vocab_and_merges(files["vocab.json"], files["merges.txt"], where, parts);
  } else {
    throw UserError(
        fmt::format("{}: no tokenizer: neither tokenizer.json nor vocab.json with merges.txt",
                    where),
        "give a folder with these files, or data.tokenizer: bytes");
  }
  apply_tokenizer_config(config, has_tokenizer_json, where, parts);
  for (const char* name : kFiles)
    if (auto file = files.extract(name)) parts.files.insert(std::move(file));
  return make_bpe_tokenizer(std::move(parts));
}

std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& folder) {
  require(std::filesystem::is_directory(folder), "{}: no such folder", folder.string());
  std::map<std::string, std::string> files;
  for (const char* name : kFiles) {
    const std::filesystem::path path = folder / name;
    if (std::filesystem::is_regular_file(path)) files[name] = read_file(path, kMaxFileBytes);
  }
  return load_tokenizer_files(std::move(files), folder.string());
}

}  // namespace weft
