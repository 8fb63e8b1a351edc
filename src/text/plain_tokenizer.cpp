// text/plain_tokenizer.cpp: the SentencePiece family: pieces of text, a mark for a blank.
//
// Unigram (T5) and BPE over characters (Llama 2). A word is what the model segments at once.
#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/stop.h"
#include "base/utf8.h"
#include "text/tokenizer_parts.h"
#include "text/unicode_tables.h"

namespace weft {
namespace {

// <0xHH>; -1 where the token is not a byte token.
int byte_of_token(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
  int value = -1;
  const auto [end, error] = std::from_chars(token.data() + 3, token.data() + 5, value, 16);
  return error == std::errc() && end == token.data() + 5 ? value : -1;
}

class PlainTokenizer final : public PartsTokenizer {
 public:
  explicit PlainTokenizer(TokenizerParts parts)
      : PartsTokenizer(std::move(parts)),
        cut_before_marks_(parts_.bpe && parts_.bpe->keeps_marks_first(kMark)) {}

  std::string decode_next(Decoding& state, int32_t id) const override;
  std::string decode_end(Decoding& state) const override {
    std::string out;
    flush_bytes(state, out);
    return out;
  }
  std::string token_bytes(int32_t id) const override {
    const int byte = parts_.decode.byte_fallback ? byte_of_token(text_of(id)) : -1;
    return byte >= 0 ? std::string(1, static_cast<char>(byte)) : with_blanks(text_of(id));
  }

  std::string describe() const override {
    const std::string normal = parts_.normalizer.describe();
    return fmt::format("{}{}{}, {} ids, {}", parts_.bpe ? "BPE of characters" : "Unigram",
                       normal.empty() ? "" : " after ", normal, num_ids(), describe_special());
  }

 protected:
  void encode_words(std::string_view text, bool is_first, std::vector<int32_t>& ids) const override;

 private:
  void encode_marked(std::string_view text, bool is_first, std::vector<int32_t>& ids) const;
  void encode_piece(std::string_view piece, std::vector<int32_t>& ids) const;
  std::string with_blanks(std::string_view piece) const;
  void flush_bytes(Decoding& state, std::string& out) const;
  void put_text(Decoding& state, std::string text, std::string& out) const;

  bool cut_before_marks_;
};

void PlainTokenizer::encode_words(std::string_view text, bool is_first,
                                  std::vector<int32_t>& ids) const {
  if (!parts_.split.whitespace) return encode_marked(text, is_first, ids);
  for (size_t at = 0; at < text.size();) {
    size_t end = at;
    while (end < text.size()) {
      const Utf8Char c = utf8_at(text, end);
      if (unicode_flags(c.code) & kSpace) break;
      end += c.length;
    }
    if (end > at) encode_marked(text.substr(at, end - at), is_first && at == 0, ids);
    at = end;
    if (at < text.size()) at += utf8_at(text, at).length;
  }
}

// Blanks become marks, one is put before the word, and a piece begins at each.
void PlainTokenizer::encode_marked(std::string_view text, bool is_first,
                                   std::vector<int32_t>& ids) const {
  const PlainSplit& how = parts_.split;
  if (!how.metaspace) return encode_piece(text, ids);
  thread_local std::string marked;
  marked.clear();
  const bool wanted = how.prepend == PlainSplit::Prepend::kAlways ||
                      (how.prepend == PlainSplit::Prepend::kFirst && is_first);
  if (wanted && !text.starts_with(' ') && !text.starts_with(kMark)) marked = kMark;
  for (size_t at = 0; at < text.size();) {
    const size_t blank = std::min(text.find(' ', at), text.size());
    marked.append(text, at, blank - at);
    if (blank < text.size()) marked += kMark;
    at = blank + 1;
  }
  const std::string_view all = marked;
  if (!how.cut_at_marks) return encode_piece(all, ids);
  AbandonPoll poll;
  for (size_t at = 0; at < all.size(); poll.step()) {
    const size_t end = std::min(all.find(kMark, at + 1), all.size());
    encode_piece(all.substr(at, end - at), ids);
    at = end;
  }
}

// A whole text may be one piece; where merges never join a mark to what precedes it, it is cut into
// words, which only saves time.
void PlainTokenizer::encode_piece(std::string_view piece, std::vector<int32_t>& ids) const {
  if (parts_.unigram) return parts_.unigram->encode_word(piece, ids);
  if (!cut_before_marks_) return parts_.bpe->encode_word(piece, ids);
  AbandonPoll poll;
  for (size_t at = 0; at < piece.size(); poll.step()) {
    size_t end = at;
    while (piece.substr(end).starts_with(kMark)) end += kMark.size();
    end = std::min(piece.find(kMark, std::max(end, at + 1)), piece.size());
    parts_.bpe->encode_word(piece.substr(at, end - at), ids);
    at = end;
  }
}

std::string PlainTokenizer::with_blanks(std::string_view piece) const {
  std::string out;
  for (size_t at = 0; at < piece.size();) {
    const size_t mark = parts_.decode.marks ? piece.find(kMark, at) : std::string_view::npos;
    const size_t end = std::min(mark, piece.size());
    out.append(piece, at, end - at);
    if (end < piece.size()) out += ' ';
    at = end < piece.size() ? end + kMark.size() : end;
  }
  return out;
}

// A run of byte tokens is text where it is UTF-8 as a whole; else each byte is U+FFFD.
void PlainTokenizer::flush_bytes(Decoding& state, std::string& out) const {
  if (state.held.empty()) return;
  std::string text = std::exchange(state.held, "");
  std::string repaired = text;
  if (repair_utf8(repaired)) {
    repaired.clear();
    for (size_t i = 0; i < text.size(); ++i) append_utf8(repaired, kReplacement);
  }
  put_text(state, std::move(repaired), out);
}

// The beginning of the whole text may lose blanks.
void PlainTokenizer::put_text(Decoding& state, std::string text, std::string& out) const {
  if (!state.begun && parts_.decode.strip_start > 0) {
    size_t cut = 0;
    const auto most = static_cast<size_t>(parts_.decode.strip_start);
    while (cut < text.size() && cut < most && text[cut] == ' ') ++cut;
    text.erase(0, cut);
  }
  state.begun = true;
  out += text;
}

std::string PlainTokenizer::decode_next(Decoding& state, int32_t id) const {
  std::string out;
  const std::string_view piece = text_of(id);
  const int byte = parts_.decode.byte_fallback ? byte_of_token(piece) : -1;
  if (byte >= 0) {
    state.held.push_back(static_cast<char>(byte));
    return out;
  }
  flush_bytes(state, out);
  if (parts_.decode.drop_first && !state.begun) {
    std::string first(piece);
    for (size_t at = first.find(kMark); at != std::string::npos; at = first.find(kMark, at)) {
      first.erase(at, kMark.size());
    }
    put_text(state, std::move(first), out);
  } else {
    put_text(state, with_blanks(piece), out);
  }
  return out;
}

}  // namespace

std::unique_ptr<Tokenizer> make_plain_tokenizer(TokenizerParts parts) {
  return std::make_unique<PlainTokenizer>(std::move(parts));
}

}  // namespace weft
