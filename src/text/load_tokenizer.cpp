// text/load_tokenizer.cpp: which files make up a tokenizer, and in which order they are read.
#include <fmt/core.h>

#include "base/error.h"
#include "base/file.h"
#include "text/tokenizer_parts.h"

namespace weft {
namespace {

// All files that transformers may read, so that copying these copies the tokenizer.
constexpr const char* kFiles[] = {"tokenizer.json",
                                  "vocab.json",
                                  "merges.txt",
                                  "tokenizer_config.json",
                                  "special_tokens_map.json",
                                  "added_tokens.json",
                                  "chat_template.jinja",
                                  "chat_template.json",
                                  "spiece.model"};
constexpr size_t kMaxFileBytes = size_t{1} << 28;

// T5's, which is also the default: its pieces, 100 sentinels, </s> at the end.
void read_t5(const std::string& bytes, const Json& config, const std::string& what,
             TokenizerParts& parts) {
  const std::string name = class_of(config);
  if (!name.empty() && name != "T5Tokenizer")
    refuse_feature(what, fmt::format("tokenizer_class {} with spiece.model", name), "T5Tokenizer");
  const Json* extra = config.find("extra_ids");
  const int64_t num_extra_ids = extra && !extra->is_null() ? extra->as_int() : 100;
  require(num_extra_ids >= 0 && num_extra_ids <= 10000, "{}: extra_ids is {}", what, num_extra_ids);
  read_spiece(bytes, num_extra_ids, what, parts);
}

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
  } else if (files.count("spiece.model")) {
    read_t5(files["spiece.model"], config.config, where + "/spiece.model", parts);
  } else {
    throw UserError(
        fmt::format("{}: no tokenizer: neither tokenizer.json nor vocab.json with merges.txt, nor "
                    "spiece.model",
                    where),
        "give a folder with these files, or data.tokenizer: bytes");
  }
  apply_tokenizer_config(config, where, parts);
  if (!has_tokenizer_json && parts.unigram && parts.eos) parts.after = {*parts.eos};
  for (const char* name : kFiles)
    if (auto file = files.extract(name)) parts.files.insert(std::move(file));
  return parts.is_plain ? make_plain_tokenizer(std::move(parts))
                        : make_bpe_tokenizer(std::move(parts));
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
