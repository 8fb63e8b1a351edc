// text/unigram.cpp: Viterbi over the characters of a word.
//
// best[e] is the highest score of a segmentation of the first e bytes, and where its last piece
// begins. From each character, the trie yields the pieces that begin there. A character that is not
// a piece by itself may be an unknown, with a score below every piece. Ties go to the first found,
// and scores are summed from the left in float64, as in the tokenizers package: the ids depend on
// it.
#include "text/unigram.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/utf8.h"

namespace weft {
namespace {

constexpr double kUnknownPenalty = 10;

struct Best {
  double score;
  uint32_t begin;
  int32_t id;
};
constexpr uint32_t kNowhere = UINT32_MAX;

}  // namespace

int32_t find_byte_token(const Vocab& vocab, unsigned char byte) {
  return vocab.find_bytes(fmt::format("<0x{:02X}>", byte));
}

Unigram::Unigram(Vocab vocab, std::vector<double> scores, int64_t unk_id, bool byte_fallback,
                 const std::string& what)
    : vocab_(std::move(vocab)),
      scores_(std::move(scores)),
      unk_id_(static_cast<int32_t>(unk_id)),
      whole_(new std::atomic<uint8_t>[scores_.size()]()) {
  ensure(scores_.size() == vocab_.size() && !scores_.empty(), "a score for each piece");
  require(unk_id >= 0 && unk_id < vocab_.num_ids(), "{}: unk_id is {}, but there are {} pieces",
          what, unk_id, scores_.size());
  unk_score_ = *std::min_element(scores_.begin(), scores_.end()) - kUnknownPenalty;
  if (byte_fallback) {
    for (int byte = 0; byte < 256; ++byte) {
      byte_ids_.push_back(find_byte_token(vocab_, static_cast<unsigned char>(byte)));
    }
  }
  build_trie(what);
}

// Children of a node are at base ^ byte, so we search for a base with free slots for all of them,
// starting at the first free slot.
size_t Unigram::find_base(const std::vector<unsigned char>& labels) {
  while (first_free_ < nodes_.size() && nodes_[first_free_].parent >= 0) ++first_free_;
  for (size_t place = first_free_;; ++place) {
    const size_t base = place ^ labels[0];
    const size_t last = base | 255;
    if (last >= nodes_.size()) nodes_.resize(last + 1);
    const bool free = std::all_of(labels.begin(), labels.end(), [&](unsigned char label) {
      const size_t at = base ^ label;
      return at != 0 && nodes_[at].parent < 0;
    });
    if (free) return base;
  }
}

void Unigram::build_trie(const std::string& what) {
  std::vector<std::pair<std::string_view, int32_t>> pieces;
  for (int32_t id = 0; id < vocab_.num_ids(); ++id) {
    const auto bytes = vocab_.bytes(id);
    require(bytes.has_value(), "{}: no piece has the id {}", what, id);
    require(!bytes->empty(), "{}: the piece {} is empty", what, id);
    pieces.emplace_back(*bytes, id);
  }
  std::sort(pieces.begin(), pieces.end());
  struct Task {
    size_t begin, end, depth, node;  // pieces that share `depth` bytes, which lead to `node`
  };
  nodes_.resize(512);
  nodes_[0].parent = 0;
  std::vector<Task> tasks{{0, pieces.size(), 0, 0}};
  std::vector<unsigned char> labels;
  std::vector<size_t> starts;
  while (!tasks.empty()) {
    const Task task = tasks.back();
    tasks.pop_back();
    size_t at = task.begin;
    if (at < task.end && pieces[at].first.size() == task.depth) {
      nodes_[task.node].id = pieces[at++].second;
    }
    if (at == task.end) continue;
    labels.clear();
    starts.clear();
    for (; at < task.end; ++at) {
      const auto byte = static_cast<unsigned char>(pieces[at].first[task.depth]);
      if (!labels.empty() && labels.back() == byte) continue;
      labels.push_back(byte);
      starts.push_back(at);
    }
    starts.push_back(task.end);
    const size_t base = find_base(labels);
    nodes_[task.node].base = static_cast<int32_t>(base);
    for (size_t i = 0; i < labels.size(); ++i) {
      const size_t child = base ^ labels[i];
      nodes_[child].parent = static_cast<int32_t>(task.node);
      tasks.push_back({starts[i], starts[i + 1], task.depth + 1, child});
    }
  }
}

void Unigram::encode_word(std::string_view word, std::vector<int32_t>& ids) const {
  if (word.empty()) return;
  const int32_t id = vocab_.find_bytes(word);
  if (id >= 0 && is_whole(word, id)) {
    ids.push_back(id);
  } else {
    search(word, ids);
  }
}

bool Unigram::is_whole(std::string_view word, int32_t id) const {
  std::atomic<uint8_t>& known = whole_[static_cast<size_t>(id)];
  const uint8_t answer = known.load(std::memory_order_relaxed);
  if (answer != 0) [[likely]]
    return answer == 1;
  std::vector<int32_t> ids;
  search(word, ids);
  const bool whole = ids.size() == 1 && ids[0] == id;
  known.store(whole ? 1 : 2, std::memory_order_relaxed);
  return whole;
}

void Unigram::search(std::string_view word, std::vector<int32_t>& ids) const {
  ensure(word.size() < kNowhere, "a word is shorter than 4 GB");
  thread_local std::vector<Best> best;
  best.assign(word.size() + 1, {0, kNowhere, -1});
  const auto offer = [](Best& place, double score, size_t begin, int32_t id) {
    if (place.begin != kNowhere && score <= place.score) return;
    place = {score, static_cast<uint32_t>(begin), id};
  };
  for (size_t begin = 0; begin < word.size();) {
    const double before = best[begin].score;
    const size_t length = utf8_at(word, begin).length;
    bool has_single = false;
    int32_t node = 0;
    for (size_t at = begin; at < word.size(); ++at) {
      const int32_t child =
          nodes_[static_cast<size_t>(node)].base ^ static_cast<unsigned char>(word[at]);
      if (nodes_[static_cast<size_t>(child)].parent != node || child == 0) break;
      node = child;
      const int32_t id = nodes_[static_cast<size_t>(node)].id;
      if (id < 0) continue;
      offer(best[at + 1], before + scores_[static_cast<size_t>(id)], begin, id);
      has_single |= at + 1 - begin == length;
    }
    if (!has_single) offer(best[begin + length], before + unk_score_, begin, unk_id_);
    begin += length;
  }
  // Back from the end; adjacent unknowns are merged.
  const size_t first = ids.size();
  size_t end = word.size(), unknown_end = 0;
  const auto flush = [&](size_t begin) {
    if (unknown_end == 0) return;
    put_unknown(word.substr(begin, unknown_end - begin), ids);
    unknown_end = 0;
  };
  while (end > 0) {
    const Best& last = best[end];
    if (last.id == unk_id_) {
      if (unknown_end == 0) unknown_end = end;
    } else {
      flush(end);
      ids.push_back(last.id);
    }
    end = last.begin;
  }
  flush(0);
  std::reverse(ids.begin() + static_cast<int64_t>(first), ids.end());
}

// In reverse order, as the caller collects.
void Unigram::put_unknown(std::string_view text, std::vector<int32_t>& ids) const {
  const bool has_bytes =
      !byte_ids_.empty() && std::all_of(text.begin(), text.end(), [this](char c) {
        return byte_ids_[static_cast<unsigned char>(c)] >= 0;
      });
  if (!has_bytes) {
    ids.push_back(unk_id_);
    return;
  }
  for (size_t i = text.size(); i-- > 0;) {
    ids.push_back(byte_ids_[static_cast<unsigned char>(text[i])]);
  }
}

}  // namespace weft
