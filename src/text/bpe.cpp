// text/bpe.cpp: merging.
//
// A word that is a token is usually what its merges yield; that is checked once per token and then
// remembered, so most words cost one vocabulary lookup. The others are merged: as long as some
// neighbouring pair has a rank, the pair of the lowest rank (the leftmost of equals) becomes one
// symbol. Short words search for the lowest again each time, in an array that fits the cache; long
// ones keep the candidates in a heap, so that 100,000 blanks take n log n steps, not n squared.
#include "text/bpe.h"

#include <algorithm>
#include <bit>
#include <queue>

#include "base/error.h"
#include "base/utf8.h"
#include "text/unigram.h"

namespace weft {
namespace {

constexpr size_t kShort =
    48;  // 16 to 96 are equally fast on random words of 10 to 95 letters (14 MB/s)
constexpr uint64_t kFree = UINT64_MAX;

// The high bits of a product depend on all bits of its factors, the low ones do not.
inline size_t place_of(uint64_t pair, int shift) {
  return static_cast<size_t>(pair * 0x9E3779B97F4A7C15 >> shift);
}

}  // namespace

Bpe::Bpe(Vocab vocab)
    : vocab_(std::move(vocab)),
      whole_(new std::atomic<uint8_t>[static_cast<size_t>(vocab_.num_ids())]()) {
  for (size_t b = 0; b < 256; b++) {
    const char byte = static_cast<char>(b);
    byte_ids_[b] = vocab_.find_bytes({&byte, 1});
  }
  grow_pairs(64);
}

void Bpe::set_characters(int32_t unk_id, bool fuse_unk, bool byte_fallback) {
  is_plain_ = true;
  unk_id_ = unk_id;
  fuse_unk_ = fuse_unk;
  byte_ids_.fill(-1);
  for (size_t b = 0; b < 256 && byte_fallback; b++)
    byte_ids_[b] = find_byte_token(vocab_, static_cast<unsigned char>(b));
}

bool Bpe::keeps_marks_first(std::string_view mark) const {
  for (const int32_t id : merged_) {
    const std::string_view token = *vocab_.bytes(id);
    size_t at = 0;
    while (token.substr(at).starts_with(mark)) at += mark.size();
    if (token.find(mark, at) != std::string_view::npos) return false;
  }
  return true;
}

// put(id) for the symbols of a word before any merge.
template <typename Put>
inline void Bpe::first_symbols(std::string_view bytes, const Put& put) const {
  const auto put_bytes = [&](std::string_view text) {
    for (const char c : text) {
      const int32_t id = byte_ids_[static_cast<unsigned char>(c)];
      if (id >= 0) put(static_cast<uint32_t>(id));
    }
  };
  if (!is_plain_) return put_bytes(bytes);
  bool after_unknown = false;
  for (size_t at = 0; at < bytes.size();) {
    const std::string_view one = bytes.substr(at, utf8_at(bytes, at).length);
    at += one.size();
    const int32_t id = vocab_.find_bytes(one);
    const bool has_bytes = id < 0 && byte_ids_[0] >= 0;
    const bool is_unknown = id < 0 && !has_bytes;
    if (id >= 0)
      put(static_cast<uint32_t>(id));
    else if (has_bytes)
      put_bytes(one);
    else if (unk_id_ >= 0 && !(after_unknown && fuse_unk_))
      put(static_cast<uint32_t>(unk_id_));
    after_unknown = is_unknown;
  }
}

bool Bpe::has_all_bytes() const {
  return std::find(byte_ids_.begin(), byte_ids_.end(), -1) == byte_ids_.end();
}

void Bpe::reserve(size_t num_merges) {
  grow_pairs(std::bit_ceil(std::max<size_t>(64, num_merges * 3 / 2)));
  merged_.reserve(num_merges);
}

void Bpe::grow_pairs(size_t num_entries) {
  std::vector<uint64_t> old(num_entries, kFree);
  old.swap(pairs_);
  shift_ = 64 - std::countr_zero(pairs_.size());
  const size_t mask = pairs_.size() - 1;
  for (const uint64_t entry : old) {
    if (entry == kFree) continue;
    size_t i = place_of(entry >> 20, shift_);
    while (pairs_[i] != kFree) i = (i + 1) & mask;
    pairs_[i] = entry;
  }
}

inline uint32_t Bpe::rank_of(uint32_t left, uint32_t right) const {
  const uint64_t pair = uint64_t{left} << 22 | right;
  const size_t mask = pairs_.size() - 1;
  for (size_t i = place_of(pair, shift_);; i = (i + 1) & mask) {
    const uint64_t entry = pairs_[i];
    if (entry >> 20 == pair) return static_cast<uint32_t>(entry & kMaxMerges);
    if (entry == kFree) return kNoRank;
  }
}

void Bpe::add_merge(int32_t left, int32_t right, int32_t merged) {
  ensure(merged_.size() < kMaxMerges, "the reader limits the number of merges");
  const auto rank = static_cast<uint32_t>(merged_.size());
  merged_.push_back(merged);
  if (3 * merged_.size() > 2 * pairs_.size()) grow_pairs(pairs_.size() * 2);
  const uint64_t pair = uint64_t{static_cast<uint32_t>(left)} << 22 | static_cast<uint32_t>(right);
  const size_t mask = pairs_.size() - 1;
  size_t i = place_of(pair, shift_);
  while (pairs_[i] != kFree && pairs_[i] >> 20 != pair) i = (i + 1) & mask;
  pairs_[i] = pair << 20 | rank;
}

void Bpe::encode_word(std::string_view bytes, std::vector<int32_t>& ids) const {
  const int32_t id = vocab_.find_bytes(bytes);
  if (id >= 0 && (ignore_merges_ || merges_to_itself(bytes, id)))
    ids.push_back(id);
  else
    merge(bytes, ids);
}

bool Bpe::merges_to_itself(std::string_view bytes, int32_t id) const {
  std::atomic<uint8_t>& known = whole_[static_cast<size_t>(id)];
  const uint8_t answer = known.load(std::memory_order_relaxed);
  if (answer != 0) [[likely]]
    return answer == 1;
  std::vector<int32_t> ids;
  merge(bytes, ids);
  const bool whole = ids.size() == 1 && ids[0] == id;
  known.store(whole ? 1 : 2, std::memory_order_relaxed);
  return whole;
}

void Bpe::merge(std::string_view bytes, std::vector<int32_t>& ids) const {
  if (bytes.size() <= kShort) {
    uint32_t symbols[kShort];
    size_t count = 0;
    first_symbols(bytes, [&](uint32_t id) { symbols[count++] = id; });
    count = merge_short(symbols, count);
    for (size_t i = 0; i < count; i++) ids.push_back(static_cast<int32_t>(symbols[i]));
    return;
  }
  std::vector<uint32_t> symbols;
  symbols.reserve(bytes.size());
  first_symbols(bytes, [&](uint32_t id) { symbols.push_back(id); });
  merge_long(std::move(symbols), ids);
}

// Merges in place; returns how many symbols are left.
size_t Bpe::merge_short(uint32_t* symbols, size_t count) const {
  if (count < 2) return count;
  uint32_t ranks[kShort];  // of the pair (i, i + 1)
  for (size_t i = 0; i + 1 < count; i++) ranks[i] = rank_of(symbols[i], symbols[i + 1]);
  while (count > 1) {
    const uint32_t* lowest = std::min_element(ranks, ranks + count - 1);
    if (*lowest == kNoRank) break;
    const auto at = static_cast<size_t>(lowest - ranks);
    symbols[at] = static_cast<uint32_t>(merged_[*lowest]);
    count--;
    for (size_t i = at + 1; i < count; i++) symbols[i] = symbols[i + 1];
    for (size_t i = at + 1; i + 1 < count; i++) ranks[i] = ranks[i + 1];
    if (at > 0) ranks[at - 1] = rank_of(symbols[at - 1], symbols[at]);
    if (at + 1 < count) ranks[at] = rank_of(symbols[at], symbols[at + 1]);
  }
  return count;
}

// Symbols are a linked list over their first positions; a heap holds (rank, position). A candidate
// whose rank is no longer that of its position is stale and dropped.
void Bpe::merge_long(std::vector<uint32_t> symbols, std::vector<int32_t>& ids) const {
  const size_t count = symbols.size();
  ensure(count < UINT32_MAX, "a word is shorter than 4 GB");
  if (count == 0) return;
  const auto end = static_cast<uint32_t>(count);
  std::vector<uint32_t> ranks(count, kNoRank), previous(count), next(count);
  std::vector<uint64_t> candidates;
  for (uint32_t i = 0; i < end; i++) {
    previous[i] = i - 1;
    next[i] = i + 1;
    if (i + 1 == end) break;
    ranks[i] = rank_of(symbols[i], symbols[i + 1]);
    if (ranks[i] != kNoRank) candidates.push_back(uint64_t{ranks[i]} << 32 | i);
  }
  std::priority_queue<uint64_t, std::vector<uint64_t>, std::greater<>> heap(std::greater<>(),
                                                                            std::move(candidates));
  const auto rank_again = [&](uint32_t i) {
    ranks[i] = next[i] < end ? rank_of(symbols[i], symbols[next[i]]) : kNoRank;
    if (ranks[i] != kNoRank) heap.push(uint64_t{ranks[i]} << 32 | i);
  };
  while (!heap.empty()) {
    const auto rank = static_cast<uint32_t>(heap.top() >> 32);
    const auto at = static_cast<uint32_t>(heap.top());
    heap.pop();
    if (ranks[at] != rank) continue;
    symbols[at] = static_cast<uint32_t>(merged_[rank]);
    const uint32_t gone = next[at];
    ranks[gone] = kNoRank;
    next[at] = next[gone];
    if (next[at] < end) previous[next[at]] = at;
    rank_again(at);
    if (at > 0) rank_again(previous[at]);
  }
  for (uint32_t i = 0; i < end; i = next[i]) ids.push_back(static_cast<int32_t>(symbols[i]));
}

}  // namespace weft
