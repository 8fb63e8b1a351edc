// tests/text/tokenizer_fixture.h: small tokenizers made in the test, and the shared real ones.
#pragma once

#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "base/json.h"
#include "tests/shared_data.h"
#include "text/byte_alphabet.h"
#include "text/tokenizer.h"

namespace weft::test {

inline const std::filesystem::path kShared = shared_data();

using Ids = std::vector<int32_t>;
using Merge = std::pair<std::string, std::string>;

inline Ids ids_of(const Tokenizer& tokenizer, std::string_view text, bool add_special = true) {
  Ids ids;
  tokenizer.encode(text, add_special, ids);
  return ids;
}

inline std::string slurp(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream out;
  out << file.rdbuf();
  return out.str();
}

// A tokenizer.json in which byte b has the id b and each merge makes the next id from 256.
inline Json small_tokenizer(const std::vector<Merge>& merges) {
  Json::Object vocab;
  for (int b = 0; b < 256; b++) vocab.emplace_back(byte_symbol(static_cast<unsigned char>(b)), b);
  Json::Array lines;
  int next = 256;
  for (const auto& [left, right] : merges) {
    lines.push_back(left + " " + right);
    vocab.emplace_back(left + right, next++);
  }
  const Json::Object byte_level{
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}};
  return Json::Object{
      {"added_tokens", Json::Array{}},
      {"normalizer", nullptr},
      {"pre_tokenizer", byte_level},
      {"post_processor", nullptr},
      {"decoder", byte_level},
      {"model", Json::Object{{"type", "BPE"}, {"vocab", vocab}, {"merges", lines}}}};
}

inline Json& entry(Json& object, std::string_view key) {
  for (auto& [name, value] : object.as_object())
    if (name == key) return value;
  object.set(std::string(key), Json());
  return object.as_object().back().second;
}

inline Json added_token(const std::string& content, int id, bool special = true) {
  return Json::Object{{"id", id},           {"content", content}, {"special", special},
                      {"lstrip", false},    {"rstrip", false},    {"single_word", false},
                      {"normalized", false}};
}

inline std::unique_ptr<Tokenizer> load(const Json& tokenizer, const Json& config = {}) {
  std::map<std::string, std::string> files{{"tokenizer.json", tokenizer.dump()}};
  if (!config.is_null()) files["tokenizer_config.json"] = config.dump();
  return load_tokenizer_files(std::move(files), "folder");
}

}  // namespace weft::test
