// benchmarks/tokenizer_bench.cpp: MB/s of one thread, row by row as training reads, and load time.
//
//   tokenizer_bench ../shared/data/wikitext2/wiki.test.raw ../shared/data/tokenizers/{qwen2,gpt2}
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "text/tokenizer.h"

namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

size_t encode_rows(const weft::Tokenizer& tokenizer, std::string_view text) {
  std::vector<int32_t> ids;
  size_t num_ids = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    ids.clear();
    tokenizer.encode(text.substr(0, end), true, ids);
    num_ids += ids.size();
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return num_ids;
}

void bench(const std::string& folder, std::string_view text) {
  double load_ms = 1e9, seconds = 1e9;
  size_t num_ids = 0;
  for (int run = 0; run < 5; run++) {
    const auto start = std::chrono::steady_clock::now();
    const auto tokenizer = weft::load_tokenizer(folder);
    load_ms = std::min(load_ms, seconds_since(start) * 1e3);
    for (int pass = 0; pass < 3; pass++) {
      const auto begin = std::chrono::steady_clock::now();
      num_ids = encode_rows(*tokenizer, text);
      seconds = std::min(seconds, seconds_since(begin));
    }
  }
  fmt::print("{}: load {:.0f} ms, {:.1f} MB/s, {} ids\n", folder, load_ms,
             static_cast<double>(text.size()) / 1e6 / seconds, num_ids);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    fmt::print(stderr, "usage: tokenizer_bench TEXT_FILE TOKENIZER_FOLDER...\n");
    return 2;
  }
  try {
    const std::string text = weft::read_file(argv[1]);
    for (int i = 2; i < argc; i++) bench(argv[i], text);
  } catch (const weft::Error& e) {
    fmt::print(stderr, "error: {}\n", e.what());
    return e.exit_code();
  }
}
