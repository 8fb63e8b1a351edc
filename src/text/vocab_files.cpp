// text/vocab_files.cpp: vocab.json and merges.txt.
#include <fmt/core.h>

#include "base/error.h"
#include "text/byte_alphabet.h"
#include "text/json_scan.h"
#include "text/tokenizer_parts.h"

namespace weft {

Vocab read_vocab(JsonScan& scan, size_t num_bytes, Vocab::Form form, const std::string& what) {
  Vocab vocab(form);
  vocab.reserve(num_bytes / 20, num_bytes / 2);
  std::string token;
  scan.expect('{');
  for (bool first = true; scan.next(first, '}');) {
    token = scan.string();
    scan.expect(':');
    vocab.add(token, scan.integer(), what);
  }
  return vocab;
}

// The three tokens of a merge are looked up in one buffer: left, right, and both together.
void add_merge(Bpe& bpe, std::string_view left, std::string_view right, const std::string& what) {
  require(bpe.num_merges() < Bpe::kMaxMerges, "{}: more than {} merges", what, Bpe::kMaxMerges);
  const Vocab& vocab = bpe.vocab();
  std::string bytes;
  bytes.reserve(left.size() + right.size());
  int32_t a = -1, b = -1, ab = -1;
  if (append_bytes_of_symbols(bytes, left)) {
    const size_t cut = bytes.size();
    a = vocab.find_bytes(bytes);
    if (append_bytes_of_symbols(bytes, right)) {
      b = vocab.find_bytes(std::string_view(bytes).substr(cut));
      ab = vocab.find_bytes(bytes);
      if (a >= 0 && b >= 0 && ab >= 0) return bpe.add_merge(a, b, ab);
    }
  }
  const std::string both = std::string(left) + std::string(right);
  a = vocab.find_text(left), b = vocab.find_text(right), ab = vocab.find_text(both);
  if (a < 0 || b < 0 || ab < 0) {
    const std::string_view missing = a < 0 ? left : b < 0 ? right : both;
    throw UserError(fmt::format("{}: merge {} ('{}' and '{}'): '{}' is not in the vocabulary", what,
                                bpe.num_merges() + 1, left, right, missing));
  }
  bpe.add_merge(a, b, ab);
}

void add_merge_line(Bpe& bpe, std::string_view line, const std::string& what) {
  const size_t blank = line.find(' ');
  if (blank == std::string_view::npos || line.find(' ', blank + 1) != std::string_view::npos)
    throw UserError(fmt::format("{}: merge {} is '{}', wanted two tokens and one blank", what,
                                bpe.num_merges() + 1, line));
  add_merge(bpe, line.substr(0, blank), line.substr(blank + 1), what);
}

void read_vocab_and_merges(std::string_view vocab, std::string_view merges,
                           const std::string& where, TokenizerParts& parts) {
  const std::string vocab_name = where + "/vocab.json", merges_name = where + "/merges.txt";
  JsonScan scan(vocab, vocab_name);
  parts.bpe =
      std::make_unique<Bpe>(read_vocab(scan, vocab.size(), Vocab::Form::kByteSymbols, vocab_name));
  scan.expect_end();
  parts.bpe->reserve(merges.size() / 11);
  while (!merges.empty()) {
    const size_t end = std::min(merges.find('\n'), merges.size());
    std::string_view line = merges.substr(0, end);
    merges.remove_prefix(std::min(end + 1, merges.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.starts_with("#version") || (line.empty() && merges.empty())) continue;
    add_merge_line(*parts.bpe, line, merges_name);
  }
}

}  // namespace weft
