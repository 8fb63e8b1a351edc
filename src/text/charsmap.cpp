// text/charsmap.cpp: the double array (darts-clone's layout), and clusters.
//
// A unit of the array: label in bits 0-7 (bit 31 set: a value), bit 8: has a value child, bits
// 10-31 the offset, shifted by 8 where bit 9 is set.
#include "text/charsmap.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/utf8.h"
#include "text/tokenizer.h"
#include "text/unicode_tables.h"

namespace weft {
namespace {

constexpr size_t kMaxCluster = 6;  // bytes; from here on characters are mapped one by one

size_t offset_of(uint32_t unit) { return size_t{unit >> 10} << ((unit & (1u << 9)) >> 6); }
uint32_t label_of(uint32_t unit) { return unit & (1u << 31 | 0xFF); }
bool has_value(uint32_t unit) { return unit >> 8 & 1; }

// The end of the cluster at text[at]. What joins only in longer clusters (Hangul syllables, flags,
// emoji sequences, Indic conjuncts) is ignored: it has 6 bytes or more.
size_t cluster_end(std::string_view text, size_t at) {
  Utf8Char c = utf8_at(text, at);
  size_t end = at + c.length;
  if (c.code == '\r') return end < text.size() && text[end] == '\n' ? end + 1 : end;
  uint8_t shape = shape_flags(c.code);
  if (shape & kControl) return end;
  while (end < text.size()) {
    c = utf8_at(text, end);
    const uint8_t next = shape_flags(c.code);
    const bool joins = (next & kExtends) || ((shape & kPrepend) && !(next & kControl));
    if (!joins) break;
    end += c.length;
    shape = next;
  }
  return end;
}

}  // namespace

CharsMap::CharsMap(std::string_view blob, const std::string& what) {
  uint32_t num_bytes = 0;
  require(blob.size() >= 4, "{}: the character map is too short", what);
  std::memcpy(&num_bytes, blob.data(), 4);
  require(num_bytes % 4 == 0 && num_bytes >= 4 && num_bytes <= blob.size() - 4,
          "{}: the character map has {} bytes, its trie says {}", what, blob.size(), num_bytes);
  trie_.resize(num_bytes / 4);
  std::memcpy(trie_.data(), blob.data() + 4, num_bytes);
  texts_ = blob.substr(4 + size_t{num_bytes});
  std::string copy = texts_;
  require(!repair_utf8(copy), "{}: the character map holds bytes that are not UTF-8", what);
  for (unsigned char c = 0; c < 128; ++c) {
    const char byte = static_cast<char>(c);
    plain_ascii_[c] = !form_of({&byte, 1}).has_value();
  }
}

// The text of the shortest prefix of `chunk` that is in the trie.
std::optional<std::string_view> CharsMap::form_of(std::string_view chunk) const {
  size_t at = offset_of(trie_[0]);
  for (const char c : chunk) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte == 0) break;
    at ^= byte;
    if (at >= trie_.size() || label_of(trie_[at]) != byte) break;
    const bool found = has_value(trie_[at]);
    at ^= offset_of(trie_[at]);
    if (!found) continue;
    if (at >= trie_.size()) break;
    const size_t begin = trie_[at] & 0x7FFFFFFF;
    if (begin > texts_.size()) break;
    const size_t end = std::min(texts_.find('\0', begin), texts_.size());
    return std::string_view(texts_).substr(begin, end - begin);
  }
  return std::nullopt;
}

void CharsMap::put_cluster(std::string_view cluster, std::string& out) const {
  if (cluster.size() < kMaxCluster) {
    if (const auto form = form_of(cluster)) {
      out += *form;
      return;
    }
  }
  for (size_t at = 0; at < cluster.size();) {
    const std::string_view one = cluster.substr(at, utf8_at(cluster, at).length);
    out += form_of(one).value_or(one);
    at += one.size();
  }
}

std::optional<std::string> CharsMap::apply(std::string_view text) const {
  const auto is_plain = [&](size_t i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    return byte < 0x80 && plain_ascii_[byte];
  };
  std::string out;
  for (size_t at = 0; at < text.size();) {
    // Unmapped ASCII is copied at once; its last character may have accents.
    size_t end = at;
    while (end < text.size() && is_plain(end)) ++end;
    if (end == text.size() && at == 0) return std::nullopt;
    if (end < text.size() && end > at && static_cast<unsigned char>(text[end]) >= 0x80) --end;
    out.append(text, at, end - at);
    at = end;
    if (at >= text.size()) break;
    end = cluster_end(text, at);
    put_cluster(text.substr(at, end - at), out);
    at = end;
  }
  return out;
}

std::string decode_base64(std::string_view text, const std::string& what) {
  std::string out;
  uint32_t bits = 0;
  int num_bits = 0;
  while (text.ends_with('=')) text.remove_suffix(1);
  for (const char c : text) {
    uint32_t value = 0;
    if (c >= 'A' && c <= 'Z') {
      value = static_cast<uint32_t>(c - 'A');
    } else if (c >= 'a' && c <= 'z') {
      value = static_cast<uint32_t>(c - 'a' + 26);
    } else if (c >= '0' && c <= '9') {
      value = static_cast<uint32_t>(c - '0' + 52);
    } else {
      require(c == '+' || c == '/', "{}: '{}' is not base64", what, c);
      value = c == '+' ? 62 : 63;
    }
    bits = bits << 6 | value;
    num_bits += 6;
    if (num_bits < 8) continue;
    num_bits -= 8;
    out.push_back(static_cast<char>(bits >> num_bits & 0xFF));
  }
  return out;
}

}  // namespace weft
