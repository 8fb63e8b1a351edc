// text/normalize.cpp: decompose, sort the marks, compose (Unicode Standard Annex 15).
//
// Only stretches that contain an unstable character are processed. A stretch begins at a starter (a
// character of combining class 0) that composes with nothing before it, so the text between two
// stretches can be copied.
#include "text/normalize.h"

#include <algorithm>
#include <vector>

#include "base/utf8.h"
#include "text/unicode_tables.h"

namespace weft {
namespace {

constexpr uint32_t kHangul = 0xAC00, kLead = 0x1100, kVowel = 0x1161, kTail = 0x11A7;
constexpr uint32_t kNumLeads = 19, kNumVowels = 21, kNumTails = 28;
constexpr uint32_t kNumHangul = kNumLeads * kNumVowels * kNumTails;

struct Mark {
  uint32_t code;
  uint8_t combining_class;
};

uint8_t combining_class(uint32_t code) {
  if (!(unicode_flags(code) & kUnstable)) return 0;
  const CombiningRange* end = kCombiningRanges + kNumCombiningRanges;
  const CombiningRange* after = std::upper_bound(
      kCombiningRanges, end, code, [](uint32_t c, const CombiningRange& r) { return c < r.first; });
  if (after == kCombiningRanges || code > after[-1].last) return 0;
  return after[-1].combining_class;
}

void decompose(uint32_t code, std::vector<Mark>& out) {
  if (code - kHangul < kNumHangul) {
    const uint32_t index = code - kHangul;
    out.push_back({kLead + index / (kNumVowels * kNumTails), 0});
    out.push_back({kVowel + index / kNumTails % kNumVowels, 0});
    if (index % kNumTails) out.push_back({kTail + index % kNumTails, 0});
    return;
  }
  const Decomposition* end = kDecompositions + kNumDecompositions;
  const Decomposition* found = std::lower_bound(
      kDecompositions, end, code, [](const Decomposition& d, uint32_t c) { return d.code < c; });
  if (found == end || found->code != code) {
    out.push_back({code, combining_class(code)});
    return;
  }
  decompose(found->first, out);
  if (found->second) decompose(found->second, out);
}

uint32_t compose(uint32_t first, uint32_t second) {  // 0: they do not
  if (first - kLead < kNumLeads && second - kVowel < kNumVowels)
    return kHangul + ((first - kLead) * kNumVowels + second - kVowel) * kNumTails;
  if (first - kHangul < kNumHangul && (first - kHangul) % kNumTails == 0 &&
      second - kTail - 1 < kNumTails - 1)
    return first + second - kTail;
  const Composition* end = kCompositions + kNumCompositions;
  const auto before = [](const Composition& c, const std::pair<uint32_t, uint32_t>& want) {
    return std::pair(c.first, c.second) < want;
  };
  const Composition* found = std::lower_bound(kCompositions, end, std::pair(first, second), before);
  return found != end && found->first == first && found->second == second ? found->code : 0;
}

void sort_marks(std::vector<Mark>& marks) {
  for (size_t at = 0; at < marks.size();) {
    size_t end = at;
    while (end < marks.size() && marks[end].combining_class != 0) end++;
    std::stable_sort(marks.begin() + static_cast<long>(at), marks.begin() + static_cast<long>(end),
                     [](Mark a, Mark b) { return a.combining_class < b.combining_class; });
    at = end + 1;
  }
}

// A mark joins the last starter unless a mark of its own class or above, or a starter that did not
// join, is between them.
void compose_stretch(std::vector<Mark>& marks, std::string& out) {
  std::vector<uint32_t> composed;
  size_t starter = SIZE_MAX;
  int last_class = -1;  // of what follows the starter; -1: nothing
  for (const Mark mark : marks) {
    if (starter != SIZE_MAX && last_class < mark.combining_class) {
      if (const uint32_t joined = compose(composed[starter], mark.code)) {
        composed[starter] = joined;
        continue;
      }
    }
    if (mark.combining_class == 0) {
      starter = composed.size();
      last_class = -1;
    } else {
      last_class = mark.combining_class;
    }
    composed.push_back(mark.code);
  }
  for (const uint32_t code : composed) append_utf8(out, code);
}

// Below U+0300, whose first byte is CC, every character is stable. Blocks, so that the compiler
// makes vectors of it.
bool all_below_300(std::string_view text) {
  constexpr size_t kBlock = 64;
  size_t at = 0;
  for (; at + kBlock <= text.size(); at += kBlock) {
    unsigned char highest = 0;
    for (size_t i = 0; i < kBlock; i++)
      highest = std::max(highest, static_cast<unsigned char>(text[at + i]));
    if (highest >= 0xCC) return false;
  }
  for (; at < text.size(); at++)
    if (static_cast<unsigned char>(text[at]) >= 0xCC) return false;
  return true;
}

}  // namespace

std::optional<std::string> to_nfc(std::string_view text) {
  if (all_below_300(text)) return std::nullopt;
  std::string out;
  std::vector<Mark> stretch;
  size_t copied = 0;  // bytes of text that are in `out`
  size_t stable = 0;  // where the last stable character begins
  for (size_t at = 0; at < text.size();) {
    if (static_cast<unsigned char>(text[at]) < 0x80) {
      stable = at++;
      continue;
    }
    const Utf8Char c = utf8_at(text, at);
    if (!c.valid || !(unicode_flags(c.code) & kUnstable)) {
      stable = at;
      at += c.length;
      continue;
    }
    size_t begin = at > stable ? stable : at;
    if (begin < copied || (begin < at && !utf8_at(text, begin).valid)) begin = at;
    out.append(text, copied, begin - copied);
    stretch.clear();
    for (at = begin; at < text.size();) {
      const Utf8Char d = utf8_at(text, at);
      if (!d.valid || (at > begin && !(unicode_flags(d.code) & kUnstable))) break;
      decompose(d.code, stretch);
      at += d.length;
    }
    sort_marks(stretch);
    compose_stretch(stretch, out);
    copied = stable = at;
  }
  if (copied == 0) return std::nullopt;
  out.append(text, copied);
  return out;
}

namespace {

// Text with every character of the table replaced; nothing where there is none.
std::optional<std::string> map_characters(std::string_view text, const Mapping* table, size_t size,
                                          const uint32_t* codes) {
  std::optional<std::string> out;
  size_t copied = 0;
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = utf8_at(text, at);
    const size_t begin = at;
    at += c.length;
    if (c.code < 0x80 || !c.valid) continue;
    const Mapping* end = table + size;
    const Mapping* found = std::lower_bound(
        table, end, c.code, [](const Mapping& m, uint32_t code) { return m.code < code; });
    if (found == end || found->code != c.code) continue;
    if (!out) out.emplace();
    out->append(text, copied, begin - copied);
    for (uint32_t i = 0; i < found->length; ++i) append_utf8(*out, codes[found->begin + i]);
    copied = at;
  }
  if (out) out->append(text, copied);
  return out;
}

}  // namespace

std::optional<std::string> to_nfkc(std::string_view text) {
  auto mapped = map_characters(text, kCompatible, kNumCompatible, kCompatibleCodes);
  auto composed = to_nfc(mapped ? std::string_view(*mapped) : text);
  return composed ? std::move(composed) : std::move(mapped);
}

std::optional<std::string> to_lower(std::string_view text) {
  auto out = map_characters(text, kLowered, kNumLowered, kLoweredCodes);
  const auto is_upper = [](char c) { return c >= 'A' && c <= 'Z'; };
  const std::string_view now = out ? std::string_view(*out) : text;
  if (std::none_of(now.begin(), now.end(), is_upper)) return out;
  if (!out) out.emplace(text);
  for (char& c : *out) c = is_upper(c) ? static_cast<char>(c - 'A' + 'a') : c;
  return out;
}

}  // namespace weft
