// data/batch_layout.cpp: ids, targets, segments and padding of a batch.
#include <algorithm>
#include <numeric>

#include "data/batch_builder.h"

namespace weft {
namespace {

template <typename T>
void resize_and_fill(std::vector<T>& values, int64_t size, T value) {
  values.assign(static_cast<size_t>(size), value);
}

// `length` positions from `at` on are those of segment `number`.
void mark(int32_t number, int64_t at, int64_t length, std::vector<int32_t>& segments,
          std::vector<int32_t>& position_ids) {
  std::fill_n(segments.begin() + at, length, number);
  std::iota(position_ids.begin() + at, position_ids.begin() + at + length, 0);
}

}  // namespace

void cut_passes(int64_t rows_a_pass, Batch& batch) {
  batch.pass_lengths.clear();
  batch.pass_source_lengths.clear();
  batch.positions = 0;
  for (int64_t first = 0; first < batch.num_rows; first += rows_a_pass) {
    const int64_t rows = std::min(rows_a_pass, batch.num_rows - first);
    const auto cut = [&](const std::vector<int32_t>& lengths, int64_t most,
                         std::vector<int64_t>& out) {
      const auto begin = lengths.begin() + first;
      out.push_back(bucket_length(*std::max_element(begin, begin + rows), most));
      batch.positions += rows * out.back();
    };
    cut(batch.lengths, batch.seq_length, batch.pass_lengths);
    if (batch.source_length > 0)
      cut(batch.source_lengths, batch.source_length, batch.pass_source_lengths);
  }
}

// The shape comes first: pad's is fixed, dynamic's is that of the longest row of the global batch,
// rounded up to a bucket.
void BatchBuilder::put_rows(Batch& out) {
  const bool is_answer = answers();
  const int64_t B =
      packs() ? static_cast<int64_t>(chosen_.size()) : static_cast<int64_t>(num_taken_);
  int64_t T = is_answer ? config_.target_length : config_.seq_length;
  int64_t S = is_answer ? config_.seq_length : 0;
  if (config_.layout == "dynamic") {
    T = bucket_length(longest_, T);
    if (is_answer) S = bucket_length(longest_source_, S);
  }
  out.num_rows = B;
  out.seq_length = T;
  out.source_length = S;
  out.tokens = out.target_tokens = 0;
  out.row_numbers.assign(row_numbers_.begin(), row_numbers_.end());
  resize_and_fill(out.ids, B * T, maker_.pad_id());
  resize_and_fill(out.targets, B * T, -1);
  resize_and_fill(out.lengths, B, 0);
  resize_and_fill(out.segments, packs() ? B * T : 0, 0);
  resize_and_fill(out.position_ids, packs() ? B * T : 0, 0);
  resize_and_fill(out.source_ids, B * S, maker_.pad_id());
  resize_and_fill(out.source_lengths, is_answer ? B : 0, 0);
  resize_and_fill(out.source_segments, packs() ? B * S : 0, 0);
  resize_and_fill(out.source_position_ids, packs() ? B * S : 0, 0);
  for (int64_t b = 0; b < B; ++b) {
    if (packs() && is_answer) {
      put_packed_answers(chosen_[static_cast<size_t>(b)], b, out);
    } else if (packs()) {
      put_packed(chosen_[static_cast<size_t>(b)], b, out);
    } else if (is_answer) {
      put_answer(taken_[static_cast<size_t>(b)], b, out);
    } else {
      put_causal(taken_[static_cast<size_t>(b)], b, out);
    }
  }
  out.positions = B * (T + S);
  out.pass_lengths.clear();
  out.pass_source_lengths.clear();
  // Which rows are computed together must not decide how much padding is learned.
  if (config_.layout == "dynamic" && options_.rows_a_pass > 0 && config_.mask_padding)
    cut_passes(options_.rows_a_pass, out);
  if (!packs()) out.counted.rows = B;
  out.counted.tokens = out.tokens;
  out.counted.padding = out.positions - out.tokens;
}

// The target of position t is token t + 1 where that is a label. With mask_padding off the label
// row is the padded row itself, shifted, as transformers does when labels hold the padding.
void BatchBuilder::put_causal(const CachedRow& row, int64_t b, Batch& out) const {
  const int64_t T = out.seq_length, n = static_cast<int64_t>(row.ids.size());
  int32_t* ids = out.ids.data() + b * T;
  int32_t* targets = out.targets.data() + b * T;
  std::copy(row.ids.begin(), row.ids.end(), ids);
  for (int64_t t = 0; t + 1 < (config_.mask_padding ? n : T); ++t) {
    const bool is_label = t + 1 >= n || row.is_label[static_cast<size_t>(t) + 1];
    if (!is_label) continue;
    targets[t] = ids[t + 1];
    ++out.target_tokens;
  }
  out.lengths[static_cast<size_t>(b)] = static_cast<int32_t>(n);
  out.tokens += n;
}

// The decoder is fed the answer moved to the right by one, and learns the answer.
void BatchBuilder::put_answer(const CachedRow& row, int64_t b, Batch& out) const {
  const int64_t T = out.seq_length, S = out.source_length, num_source = row.num_source;
  const int64_t n = static_cast<int64_t>(row.ids.size()) - num_source;
  const auto answer = row.ids.begin() + num_source;
  std::copy(row.ids.begin(), answer, out.source_ids.begin() + b * S);
  out.source_lengths[static_cast<size_t>(b)] = static_cast<int32_t>(num_source);
  int32_t* ids = out.ids.data() + b * T;
  int32_t* targets = out.targets.data() + b * T;
  std::copy(answer, row.ids.end(), targets);
  if (!config_.mask_padding) std::fill(targets + n, targets + T, maker_.pad_id());
  ids[0] = start_id();
  for (int64_t t = 1; t < T; ++t) {
    ids[t] = t - 1 < n ? answer[t - 1] : maker_.pad_id();
  }
  out.lengths[static_cast<size_t>(b)] = static_cast<int32_t>(n);
  out.tokens += num_source + n;
  out.target_tokens += config_.mask_padding ? n : T;
}

// Segment after segment: positions begin at 0 in each, and its first token is nobody's target.
void BatchBuilder::put_packed(const PackedRow& row, int64_t b, Batch& out) {
  const int64_t T = out.seq_length;
  int64_t at = 0;
  for (size_t s = 0; s < row.size(); ++s) {
    out.counted.rows += row[s].begin == 0;
    cache_.read(chosen_rows_[static_cast<size_t>(b)][s], info_);
    mark(static_cast<int32_t>(s) + 1, b * T + at, row[s].length, out.segments, out.position_ids);
    for (int64_t i = 0; i < row[s].length; ++i) {
      const auto from = static_cast<size_t>(row[s].begin + i);
      const int64_t to = b * T + at + i;
      out.ids[static_cast<size_t>(to)] = info_.ids[from];
      if (i == 0 || !info_.is_label[from]) continue;
      out.targets[static_cast<size_t>(to) - 1] = info_.ids[from];
      ++out.target_tokens;
    }
    at += row[s].length;
  }
  out.lengths[static_cast<size_t>(b)] = static_cast<int32_t>(at);
  out.tokens += at;
}

// Pair after pair, on both sides; each answer is moved to the right behind a start of its own.
void BatchBuilder::put_packed_answers(const PackedRow& row, int64_t b, Batch& out) {
  const int64_t T = out.seq_length, S = out.source_length;
  int64_t at = b * T, source_at = b * S;
  for (size_t s = 0; s < row.size(); ++s) {
    const auto number = static_cast<int32_t>(s) + 1;
    cache_.read(chosen_rows_[static_cast<size_t>(b)][s], info_);
    const auto answer = info_.ids.begin() + info_.num_source;
    std::copy(info_.ids.begin(), answer, out.source_ids.begin() + source_at);
    std::copy(answer, info_.ids.end(), out.targets.begin() + at);
    for (int64_t i = 0; i < row[s].length; ++i) {
      out.ids[static_cast<size_t>(at + i)] = i == 0 ? start_id() : answer[i - 1];
    }
    mark(number, source_at, row[s].source_length, out.source_segments, out.source_position_ids);
    mark(number, at, row[s].length, out.segments, out.position_ids);
    source_at += row[s].source_length;
    at += row[s].length;
  }
  out.counted.rows += static_cast<int64_t>(row.size());
  const int64_t num_source = source_at - b * S, n = at - b * T;
  out.source_lengths[static_cast<size_t>(b)] = static_cast<int32_t>(num_source);
  out.lengths[static_cast<size_t>(b)] = static_cast<int32_t>(n);
  out.tokens += num_source + n;
  out.target_tokens += n;
}

}  // namespace weft
