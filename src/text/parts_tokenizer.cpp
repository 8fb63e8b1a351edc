// text/parts_tokenizer.cpp: what both families share: added tokens, normalization, templates.
#include <algorithm>

#include "base/error.h"
#include "base/hash.h"
#include "text/byte_alphabet.h"
#include "text/tokenizer_parts.h"

namespace weft {
namespace {

uint64_t fingerprint_of(const TokenizerParts& parts) {
  uint64_t hash = hash_text("weft tokenizer 2");
  for (const char* name : {"tokenizer.json", "vocab.json", "merges.txt", "spiece.model"}) {
    const auto file = parts.files.find(name);
    if (file != parts.files.end()) hash = hash_text(file->second, hash_text(name, hash));
  }
  std::string rest = fmt::format("{} {} {} {} {}", pattern_name(parts.pattern),
                                 parts.normalizer.describe(), parts.add_prefix_space,
                                 parts.split.metaspace, static_cast<int>(parts.split.prepend));
  for (const AddedToken& t : parts.added)
    rest += fmt::format("\n{} {} {} {} {} {} {}", t.id, t.content, t.special, t.normalized,
                        t.single_word, t.lstrip, t.rstrip);
  for (const int32_t id : parts.before) rest += fmt::format("\nbefore {}", id);
  for (const int32_t id : parts.after) rest += fmt::format("\nafter {}", id);
  return hash_text(rest, hash);
}

}  // namespace

PartsTokenizer::PartsTokenizer(TokenizerParts parts)
    : parts_(std::move(parts)),
      num_ids_(parts_.vocab().num_ids()),
      fingerprint_(fingerprint_of(parts_)) {
  for (const AddedToken& token : parts_.added) num_ids_ = std::max(num_ids_, token.id + 1);
  special_.resize(static_cast<size_t>(num_ids_));
  for (const AddedToken& token : parts_.added) {
    special_[static_cast<size_t>(token.id)] = token.special;
    added_texts_[token.id] =
        parts_.is_plain ? token.content : bytes_of_symbols(token.content).value_or(token.content);
    if (!token.normalized) {
      verbatim_.add(token, token.content);
    } else {
      normalized_.add(token, parts_.normalizer
                                 .apply(token.content, Normalizer::most_bytes(token.content.size()))
                                 .value_or(token.content));
    }
  }
}

void PartsTokenizer::encode(std::string_view text, bool add_special,
                            std::vector<int32_t>& ids) const {
  if (add_special) ids.insert(ids.end(), parts_.before.begin(), parts_.before.end());
  size_t most = Normalizer::most_bytes(text.size());
  verbatim_.split(text, [&](std::string_view piece, const AddedToken* token) {
    const bool is_first = piece.data() == text.data();
    if (token) {
      ids.push_back(token->id);
    } else if (const auto form = parts_.normalizer.apply(piece, most)) {
      most -= form->size();
      encode_normalized(*form, is_first, ids);
    } else {
      encode_normalized(piece, is_first, ids);
    }
  });
  if (add_special) ids.insert(ids.end(), parts_.after.begin(), parts_.after.end());
}

void PartsTokenizer::encode_normalized(std::string_view text, bool is_first,
                                       std::vector<int32_t>& ids) const {
  normalized_.split(text, [&](std::string_view piece, const AddedToken* token) {
    if (token)
      ids.push_back(token->id);
    else
      encode_words(piece, is_first && piece.data() == text.data(), ids);
  });
}

std::string_view PartsTokenizer::text_of(int32_t id) const {
  if (const auto added = added_texts_.find(id); added != added_texts_.end()) return added->second;
  const std::optional<std::string_view> bytes = parts_.vocab().bytes(id);
  require(bytes.has_value(), "token id {} is not in this tokenizer (0 to {})", id, num_ids_ - 1);
  return *bytes;
}

std::string PartsTokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  std::string out;
  Decoding state;
  for (const int32_t id : ids)
    if (!skip_special || !is_special(id)) out += decode_next(state, id);
  return out += decode_end(state);
}

bool PartsTokenizer::is_special(int32_t id) const {
  return id >= 0 && id < num_ids_ && special_[static_cast<size_t>(id)];
}

std::string PartsTokenizer::describe_special() const {
  const auto named = [this](const char* name, std::optional<int32_t> id) {
    return id ? fmt::format(", {} {} ({})", name, text_of(*id), *id) : std::string();
  };
  return fmt::format("{} added tokens{}{}{}", parts_.added.size(), named("eos", parts_.eos),
                     named("bos", parts_.bos), named("pad", parts_.pad));
}

int32_t TokenizerParts::find(std::string_view text) const {
  for (const AddedToken& token : added)
    if (token.content == text) return token.id;
  return vocab().find_text(text);
}

void TokenizerParts::add_token(AddedToken token, int64_t wanted_id, std::string_view what) {
  if (token.content.empty()) return;
  auto place = std::find_if(added.begin(), added.end(),
                            [&](const AddedToken& t) { return t.content == token.content; });
  token.id = place != added.end() ? place->id : vocab().find_text(token.content);
  if (token.id < 0) {
    token.id = static_cast<int32_t>(vocab().size());
    for (const AddedToken& t : added) token.id = std::max(token.id, t.id + 1);
  }
  require(token.id <= kMaxTokenId, "{}: more than {} tokens", what, kMaxTokenId);
  require(wanted_id < 0 || wanted_id == token.id,
          "{}: the added token '{}' has the id {}, but its position makes it {}", what,
          token.content, wanted_id, token.id);
  if (place != added.end())
    *place = std::move(token);
  else
    added.push_back(std::move(token));
}

}  // namespace weft
