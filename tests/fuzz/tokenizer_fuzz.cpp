// tests/fuzz/tokenizer_fuzz.cpp: any bytes as tokenizer files: loaded or rejected, never a crash.
//
// The first byte selects which files the rest represents: a tokenizer.json, vocab.json and
// merges.txt (cut at the first zero byte), a tokenizer_config.json next to a small valid tokenizer,
// or a spiece.model.
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "text/tokenizer.h"

namespace {

void use(const weft::Tokenizer& tokenizer) {
  for (const char* text :
       {"", "Hello, it's 12345!\r\n  x", "e\xCC\x81\xE1\x84\x80\xE1\x85\xA1 \xF0\x9F\xA6\x99",
        "<|endoftext|><s> ab ab", "\xFF\xC3 bad"}) {
    std::vector<int32_t> ids;
    tokenizer.encode(text, true, ids);
    for (const bool skip : {false, true}) {
      try {
        tokenizer.decode(ids, skip);  // a template may name ids that no token has
      } catch (const weft::UserError&) {
      }
    }
  }
  tokenizer.describe();
  tokenizer.files();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  std::map<std::string, std::string> files;
  if (data[0] % 4 == 0) {
    files["tokenizer.json"] = rest;
  } else if (data[0] % 4 == 1) {
    const size_t cut = rest.find('\0');
    files["vocab.json"] = rest.substr(0, cut);
    files["merges.txt"] = cut == std::string::npos ? "" : rest.substr(cut + 1);
  } else if (data[0] % 4 == 3) {
    files["spiece.model"] = rest;
  } else {
    files["vocab.json"] = R"({"a":0,"b":1,"ab":2,"<s>":3})";
    files["merges.txt"] = "a b\n";
    files["tokenizer_config.json"] = rest;
  }
  try {
    use(*weft::load_tokenizer_files(std::move(files), "fuzz"));
  } catch (const weft::UserError&) {
  }
  return 0;
}
