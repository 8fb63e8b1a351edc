// text/vocab.cpp: the table of tokens.
#include "text/vocab.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/error.h"
#include "text/byte_alphabet.h"

namespace weft {
namespace {

uint64_t read8(const char* bytes) {
  uint64_t value;
  std::memcpy(&value, bytes, 8);
  return value;
}

// A multiplication carries bits upwards, the shift brings them down again.
uint64_t mix(uint64_t value, uint64_t odd) {
  const uint64_t product = value * odd;
  return product ^ product >> 32;
}

}  // namespace

inline uint64_t Vocab::key_of(std::string_view bytes) {
  if (bytes.size() <= 8) {
    if (bytes.size() == 8) return read8(bytes.data());
    uint64_t key = 0;
    for (size_t i = bytes.size(); i-- > 0;) key = key << 8 | static_cast<unsigned char>(bytes[i]);
    return key;
  }
  uint64_t hash = bytes.size();
  size_t at = 0;
  for (; at + 8 < bytes.size(); at += 8)
    hash = mix(hash ^ read8(bytes.data() + at), 0x9E3779B97F4A7C15);
  return mix(hash ^ read8(bytes.data() + bytes.size() - 8), 0xD6E8FEB86659FD93);
}

inline size_t Vocab::place_of(uint64_t key, uint32_t length) const {
  // The high bits of a product depend on all bits of its factors, the low ones do not.
  return static_cast<size_t>((key + length) * 0x9E3779B97F4A7C15 >> shift_);
}

inline bool Vocab::is_token(const Entry& entry, uint64_t key, std::string_view bytes) const {
  if (entry.key != key || entry.length != bytes.size()) return false;
  if (bytes.size() <= 8) return true;
  const Token& token = tokens_[static_cast<size_t>(entry.id)];
  return std::memcmp(arena_.data() + token.begin, bytes.data(), bytes.size()) == 0;
}

int32_t Vocab::find_bytes(std::string_view bytes) const {
  if (entries_.empty()) return -1;
  const uint64_t key = key_of(bytes);
  const auto length = static_cast<uint32_t>(bytes.size());
  const size_t mask = entries_.size() - 1;
  for (size_t i = place_of(key, length);; i = (i + 1) & mask) {
    const Entry& e = entries_[i];
    if (e.id < 0) return -1;
    if (is_token(e, key, bytes)) return e.id;
  }
}

// False where the bytes exist already.
bool Vocab::insert_bytes(std::string_view bytes, int32_t id) {
  const uint64_t key = key_of(bytes);
  const auto length = static_cast<uint32_t>(bytes.size());
  const size_t mask = entries_.size() - 1;
  size_t i = place_of(key, length);
  for (; entries_[i].id >= 0; i = (i + 1) & mask)
    if (is_token(entries_[i], key, bytes)) return false;
  entries_[i] = {key, id, length};
  return true;
}

void Vocab::grow(size_t num_entries) {
  std::vector<Entry> old(num_entries, Entry{0, -1, 0});
  old.swap(entries_);
  shift_ = 64 - std::countr_zero(entries_.size());
  const size_t mask = entries_.size() - 1;
  for (const Entry& e : old) {
    if (e.id < 0) continue;
    size_t i = place_of(e.key, e.length);
    while (entries_[i].id >= 0) i = (i + 1) & mask;
    entries_[i] = e;
  }
}

void Vocab::reserve(size_t num_tokens, size_t num_bytes) {
  grow(std::bit_ceil(std::max<size_t>(64, num_tokens * 3 / 2)));
  tokens_.reserve(num_tokens);
  arena_.reserve(num_bytes);
}

void Vocab::add(std::string_view text, int64_t id, std::string_view what) {
  require(id >= 0 && id <= kMaxTokenId, "{}: the id of '{}' is {}, wanted 0 to {}", what, text, id,
          kMaxTokenId);
  const auto at = static_cast<size_t>(id);
  const auto id32 = static_cast<int32_t>(id);
  if (at >= tokens_.size()) tokens_.resize(at + 1);
  require(tokens_[at].length == kAbsent, "{}: two tokens have the id {}; one is '{}'", what, id,
          text);

  const size_t begin = arena_.size();
  const bool is_plain = form_ == Form::kPlain;
  const bool is_bytes = is_plain || append_bytes_of_symbols(arena_, text);
  if (!is_bytes) arena_.resize(begin);
  if (!is_bytes || is_plain) arena_ += text;
  require(arena_.size() < UINT32_MAX, "{}: more than 4 GB of tokens", what);
  const std::string_view stored = std::string_view(arena_).substr(begin);
  if (is_bytes && 3 * (num_in_entries_ + 1) > 2 * entries_.size())
    grow(std::max<size_t>(64, entries_.size() * 2));
  const bool is_new = is_bytes ? insert_bytes(stored, id32) : texts_.emplace(text, id32).second;
  require(is_new, "{}: duplicate token '{}'", what, text);
  tokens_[at] = {static_cast<uint32_t>(begin), static_cast<uint32_t>(stored.size())};
  num_in_entries_ += is_bytes;
  num_tokens_++;
}

int32_t Vocab::find_text(std::string_view text) const {
  if (form_ == Form::kPlain) return find_bytes(text);
  if (const std::optional<std::string> bytes = bytes_of_symbols(text)) return find_bytes(*bytes);
  const auto found = texts_.find(std::string(text));
  return found == texts_.end() ? -1 : found->second;
}

std::optional<std::string_view> Vocab::bytes(int32_t id) const {
  if (id < 0 || id >= num_ids()) return std::nullopt;
  const Token& token = tokens_[static_cast<size_t>(id)];
  if (token.length == kAbsent) return std::nullopt;
  return std::string_view(arena_).substr(token.begin, token.length);
}

}  // namespace weft
