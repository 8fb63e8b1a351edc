// data/batch_layout.cpp: ids, targets, segments and padding of a batch.
#include <algorithm>
#include <numeric>

#include "data/batch_builder.h"
#include "tensor/names.h"

namespace weft {
namespace {

// `length` positions from `at` on are those of segment `number`.
void mark(int32_t number, int64_t at, int64_t length, std::span<int32_t> segments,
          std::span<int32_t> positions) {
  std::fill_n(segments.begin() + at, length, number);
  std::iota(positions.begin() + at, positions.begin() + at + length, 0);
}

}  // namespace

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
  out.padded = {T, S};
  out.tokens = out.target_tokens = 0;
  reset_tensors(out);
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
  // How much padding is learned must not depend on which rows are computed together.
  if (config_.layout == "dynamic" && options_.rows_per_pass > 0 && config_.mask_padding)
    cut_passes(options_.rows_per_pass, out);
  if (!packs()) out.counted.rows = B;
  out.counted.tokens = out.tokens;
  out.counted.padding = out.positions - out.tokens;
}

void BatchBuilder::reset_tensors(Batch& out) const {
  const auto [T, S] = out.padded;
  out.reset(names::kIds, T, maker_.pad_id());
  out.reset(names::kTargets, T, -1);
  out.reset(names::kLengths, 1, 0);
  if (packs()) {
    out.reset(names::kSegments, T, 0);
    out.reset(names::kPositions, T, 0);
  } else if (options_.needs_positions) {
    const auto positions = out.reset(names::kPositions, T, 0);
    for (int64_t b = 0; b < out.num_rows; ++b)
      std::iota(positions.begin() + b * T, positions.begin() + (b + 1) * T, 0);
  }
  if (answers()) {
    out.reset(names::kSourceIds, S, maker_.pad_id());
    out.reset(names::kSourceLengths, 1, 0);
  }
  if (answers() && packs()) {
    out.reset(names::kSourceSegments, S, 0);
    out.reset(names::kSourcePositions, S, 0);
  }
  const auto rows = out.reset<int64_t>(names::kRows, 2, out.epoch);
  for (size_t b = 0; b < row_numbers_.size(); ++b) rows[2 * b + 1] = row_numbers_[b];
}

// The target of position t is token t + 1 where that is a label. With mask_padding off the label
// row is the padded row itself, shifted, as transformers does when labels hold the padding.
void BatchBuilder::put_causal(const CachedRow& row, int64_t b, Batch& out) const {
  const int64_t T = out.padded.target, n = static_cast<int64_t>(row.ids.size());
  int32_t* ids = out.values(names::kIds).data() + b * T;
  int32_t* targets = out.values(names::kTargets).data() + b * T;
  std::copy(row.ids.begin(), row.ids.end(), ids);
  for (int64_t t = 0; t + 1 < (config_.mask_padding ? n : T); ++t) {
    const bool is_label = t + 1 >= n || row.is_label[static_cast<size_t>(t) + 1];
    if (!is_label) continue;
    targets[t] = ids[t + 1];
    ++out.target_tokens;
  }
  out.values(names::kLengths)[static_cast<size_t>(b)] = static_cast<int32_t>(n);
  out.tokens += n;
}

// The decoder is fed the answer shifted right by one, and learns the answer.
void BatchBuilder::put_answer(const CachedRow& row, int64_t b, Batch& out) const {
  const auto [T, S] = out.padded;
  const int64_t num_source = row.num_source;
  const int64_t n = static_cast<int64_t>(row.ids.size()) - num_source;
  const auto answer = row.ids.begin() + num_source;
  std::copy(row.ids.begin(), answer, out.values(names::kSourceIds).begin() + b * S);
  out.values(names::kSourceLengths)[static_cast<size_t>(b)] = static_cast<int32_t>(num_source);
  int32_t* ids = out.values(names::kIds).data() + b * T;
  int32_t* targets = out.values(names::kTargets).data() + b * T;
  std::copy(answer, row.ids.end(), targets);
  if (!config_.mask_padding) std::fill(targets + n, targets + T, maker_.pad_id());
  ids[0] = options_.decoder_start_id;
  for (int64_t t = 1; t < T; ++t) {
    ids[t] = t - 1 < n ? answer[t - 1] : maker_.pad_id();
  }
  out.values(names::kLengths)[static_cast<size_t>(b)] = static_cast<int32_t>(n);
  out.tokens += num_source + n;
  out.target_tokens += config_.mask_padding ? n : T;
}

// Segment after segment: positions start at 0 in each, and its first token is not a target.
void BatchBuilder::put_packed(const PackedRow& row, int64_t b, Batch& out) {
  const int64_t T = out.padded.target;
  const auto ids = out.values(names::kIds), targets = out.values(names::kTargets);
  const auto segments = out.values(names::kSegments), positions = out.values(names::kPositions);
  int64_t at = 0;
  for (size_t s = 0; s < row.size(); ++s) {
    out.counted.rows += row[s].begin == 0;
    cache_.read(chosen_rows_[static_cast<size_t>(b)][s], info_);
    mark(static_cast<int32_t>(s) + 1, b * T + at, row[s].length, segments, positions);
    for (int64_t i = 0; i < row[s].length; ++i) {
      const auto from = static_cast<size_t>(row[s].begin + i);
      const int64_t to = b * T + at + i;
      ids[static_cast<size_t>(to)] = info_.ids[from];
      if (i == 0 || !info_.is_label[from]) continue;
      targets[static_cast<size_t>(to) - 1] = info_.ids[from];
      ++out.target_tokens;
    }
    at += row[s].length;
  }
  out.values(names::kLengths)[static_cast<size_t>(b)] = static_cast<int32_t>(at);
  out.tokens += at;
}

// Pair after pair, on both sides; each answer is shifted right after its own start token.
void BatchBuilder::put_packed_answers(const PackedRow& row, int64_t b, Batch& out) {
  const auto [T, S] = out.padded;
  const auto ids = out.values(names::kIds), targets = out.values(names::kTargets);
  const auto source_ids = out.values(names::kSourceIds);
  const auto segments = out.values(names::kSegments), positions = out.values(names::kPositions);
  const auto source_segments = out.values(names::kSourceSegments);
  const auto source_positions = out.values(names::kSourcePositions);
  int64_t at = b * T, source_at = b * S;
  for (size_t s = 0; s < row.size(); ++s) {
    const auto number = static_cast<int32_t>(s) + 1;
    cache_.read(chosen_rows_[static_cast<size_t>(b)][s], info_);
    const auto answer = info_.ids.begin() + info_.num_source;
    std::copy(info_.ids.begin(), answer, source_ids.begin() + source_at);
    std::copy(answer, info_.ids.end(), targets.begin() + at);
    for (int64_t i = 0; i < row[s].length; ++i) {
      ids[static_cast<size_t>(at + i)] = i == 0 ? options_.decoder_start_id : answer[i - 1];
    }
    mark(number, source_at, row[s].source_length, source_segments, source_positions);
    mark(number, at, row[s].length, segments, positions);
    source_at += row[s].source_length;
    at += row[s].length;
  }
  out.counted.rows += static_cast<int64_t>(row.size());
  const int64_t num_source = source_at - b * S, n = at - b * T;
  out.values(names::kSourceLengths)[static_cast<size_t>(b)] = static_cast<int32_t>(num_source);
  out.values(names::kLengths)[static_cast<size_t>(b)] = static_cast<int32_t>(n);
  out.tokens += num_source + n;
  out.target_tokens += n;
}

}  // namespace weft
