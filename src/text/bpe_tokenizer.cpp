// text/bpe_tokenizer.cpp: encode: added tokens out, normalize, split, merge; decode: bytes joined.
#include "text/bpe_tokenizer.h"

#include <algorithm>

#include "base/error.h"
#include "base/hash.h"
#include "text/byte_alphabet.h"
#include "text/normalize.h"

namespace weft {
namespace {

class BpeTokenizer final : public Tokenizer {
 public:
  explicit BpeTokenizer(TokenizerParts parts);

  void encode(std::string_view text, bool add_special, std::vector<int32_t>& ids) const override;
  std::string decode(std::span<const int32_t> ids, bool skip_special) const override;
  std::string token_bytes(int32_t id) const override;
  bool is_special(int32_t id) const override;
  int32_t num_ids() const override { return num_ids_; }
  std::optional<int32_t> eos_id() const override { return parts_.eos; }
  std::optional<int32_t> bos_id() const override { return parts_.bos; }
  std::optional<int32_t> pad_id() const override { return parts_.pad; }
  uint64_t fingerprint() const override { return fingerprint_; }
  std::string describe() const override;
  std::map<std::string, std::string> files() const override { return parts_.files; }

 private:
  void encode_normalized(std::string_view text, std::vector<int32_t>& ids) const;
  void encode_words(std::string_view text, std::vector<int32_t>& ids) const;
  std::string_view bytes_of(int32_t id) const;

  TokenizerParts parts_;
  WordEnd word_end_;
  AddedTokenFinder verbatim_, normalized_;
  std::map<int32_t, std::string> added_bytes_;  // what added tokens decode to
  std::vector<bool> special_;                   // by id
  int32_t num_ids_;
  uint64_t fingerprint_;
};

uint64_t fingerprint_of(const TokenizerParts& parts) {
  uint64_t hash = hash_text("weft byte-level BPE 1");
  for (const char* name : {"tokenizer.json", "vocab.json", "merges.txt"}) {
    const auto file = parts.files.find(name);
    if (file != parts.files.end()) hash = hash_text(file->second, hash_text(name, hash));
  }
  std::string rest =
      fmt::format("{} {} {}", pattern_name(parts.pattern), parts.nfc, parts.add_prefix_space);
  for (const AddedToken& t : parts.added)
    rest += fmt::format("\n{} {} {} {} {} {} {}", t.id, t.content, t.special, t.normalized,
                        t.single_word, t.lstrip, t.rstrip);
  for (const int32_t id : parts.before) rest += fmt::format("\nbefore {}", id);
  for (const int32_t id : parts.after) rest += fmt::format("\nafter {}", id);
  return hash_text(rest, hash);
}

BpeTokenizer::BpeTokenizer(TokenizerParts parts)
    : parts_(std::move(parts)),
      word_end_(word_end_of(parts_.pattern)),
      num_ids_(parts_.bpe->vocab().num_ids()),
      fingerprint_(fingerprint_of(parts_)) {
  for (const AddedToken& token : parts_.added) num_ids_ = std::max(num_ids_, token.id + 1);
  special_.resize(static_cast<size_t>(num_ids_));
  for (const AddedToken& token : parts_.added) {
    special_[static_cast<size_t>(token.id)] = token.special;
    added_bytes_[token.id] = bytes_of_symbols(token.content).value_or(token.content);
    if (!token.normalized) {
      verbatim_.add(token, token.content);
      continue;
    }
    const std::optional<std::string> form =
        parts_.nfc ? to_nfc(token.content) : std::optional<std::string>();
    normalized_.add(token, form.value_or(token.content));
  }
}

void BpeTokenizer::encode(std::string_view text, bool add_special,
                          std::vector<int32_t>& ids) const {
  if (add_special) ids.insert(ids.end(), parts_.before.begin(), parts_.before.end());
  verbatim_.split(text, [&](std::string_view piece, const AddedToken* token) {
    if (token)
      ids.push_back(token->id);
    else if (const auto form = parts_.nfc ? to_nfc(piece) : std::nullopt)
      encode_normalized(*form, ids);
    else
      encode_normalized(piece, ids);
  });
  if (add_special) ids.insert(ids.end(), parts_.after.begin(), parts_.after.end());
}

void BpeTokenizer::encode_normalized(std::string_view text, std::vector<int32_t>& ids) const {
  normalized_.split(text, [&](std::string_view piece, const AddedToken* token) {
    if (token)
      ids.push_back(token->id);
    else if (parts_.add_prefix_space && piece[0] != ' ')
      encode_words(std::string(1, ' ').append(piece), ids);
    else
      encode_words(piece, ids);
  });
}

void BpeTokenizer::encode_words(std::string_view text, std::vector<int32_t>& ids) const {
  for (size_t at = 0; at < text.size();) {
    const size_t end = word_end_(text, at);
    parts_.bpe->encode_word(text.substr(at, end - at), ids);
    at = end;
  }
}

std::string_view BpeTokenizer::bytes_of(int32_t id) const {
  if (const auto added = added_bytes_.find(id); added != added_bytes_.end()) return added->second;
  const std::optional<std::string_view> bytes = parts_.bpe->vocab().bytes(id);
  require(bytes.has_value(), "token id {} is not of this tokenizer (0 to {})", id, num_ids_ - 1);
  return *bytes;
}

std::string BpeTokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  std::string out;
  for (const int32_t id : ids)
    if (!skip_special || !is_special(id)) out += bytes_of(id);
  repair_utf8(out);
  return out;
}

std::string BpeTokenizer::token_bytes(int32_t id) const { return std::string(bytes_of(id)); }

bool BpeTokenizer::is_special(int32_t id) const {
  return id >= 0 && id < num_ids_ && special_[static_cast<size_t>(id)];
}

std::string BpeTokenizer::describe() const {
  const auto named = [this](const char* name, std::optional<int32_t> id) {
    return id ? fmt::format(", {} {} ({})", name, bytes_of(*id), *id) : std::string();
  };
  return fmt::format("byte-level BPE, {} words{}, {} ids, {} merges, {} added tokens{}{}{}",
                     pattern_name(parts_.pattern), parts_.nfc ? " after NFC" : "", num_ids_,
                     parts_.bpe->num_merges(), parts_.added.size(), named("eos", parts_.eos),
                     named("bos", parts_.bos), named("pad", parts_.pad));
}

}  // namespace

int32_t TokenizerParts::find(std::string_view text) const {
  for (const AddedToken& token : added)
    if (token.content == text) return token.id;
  return bpe->vocab().find_text(text);
}

void TokenizerParts::add_token(AddedToken token, int64_t wanted_id, std::string_view what) {
  if (token.content.empty()) return;
  auto place = std::find_if(added.begin(), added.end(),
                            [&](const AddedToken& t) { return t.content == token.content; });
  token.id = place != added.end() ? place->id : bpe->vocab().find_text(token.content);
  if (token.id < 0) {
    token.id = static_cast<int32_t>(bpe->vocab().size());
    for (const AddedToken& t : added) token.id = std::max(token.id, t.id + 1);
  }
  require(token.id <= kMaxTokenId, "{}: more than {} tokens", what, kMaxTokenId);
  require(wanted_id < 0 || wanted_id == token.id,
          "{}: the added token '{}' has the id {}, but by its place it is {}", what, token.content,
          wanted_id, token.id);
  if (place != added.end())
    *place = std::move(token);
  else
    added.push_back(std::move(token));
}

std::unique_ptr<Tokenizer> make_bpe_tokenizer(TokenizerParts parts) {
  return std::make_unique<BpeTokenizer>(std::move(parts));
}

}  // namespace weft
