// tests/batch_lists.h: batches from plain lists, and lists from batches.
#pragma once

#include <string_view>
#include <vector>

#include "data/batch.h"
#include "tensor/names.h"

namespace weft::testing {

// Rows one after the other; empty lists are not tensors of the batch.
struct BatchLists {
  std::vector<int32_t> ids, targets, lengths, positions, source_ids, source_lengths;
  std::vector<int64_t> numbers;  // of rows, in the batch's epoch

  void put(int64_t T, Batch* batch) const {
    batch->num_rows = static_cast<int64_t>(lengths.size());
    const int64_t S =
        source_ids.empty() ? 0 : static_cast<int64_t>(source_ids.size()) / batch->num_rows;
    batch->padded = {T, S};
    batch->set(names::kIds, T, ids);
    batch->set(names::kTargets, T, targets);
    batch->set(names::kLengths, 1, lengths);
    if (!positions.empty()) batch->set(names::kPositions, T, positions);
    if (S > 0) {
      batch->set(names::kSourceIds, S, source_ids);
      batch->set(names::kSourceLengths, 1, source_lengths);
    }
    std::vector<int64_t> rows;
    for (int64_t number : numbers) rows.insert(rows.end(), {batch->epoch, number});
    if (!rows.empty()) batch->set(names::kRows, 2, rows);
  }
};

// Targets of a decoder: each token's successor in its row, -1 for the last and for padding.
inline std::vector<int32_t> next_tokens(const std::vector<int32_t>& ids,
                                        const std::vector<int32_t>& lengths, int64_t T) {
  std::vector<int32_t> targets(ids.size(), -1);
  for (size_t r = 0; r < lengths.size(); ++r) {
    const size_t row = r * static_cast<size_t>(T);
    for (size_t t = 0; t + 1 < static_cast<size_t>(lengths[r]); ++t)
      targets[row + t] = ids[row + t + 1];
  }
  return targets;
}

template <typename T = int32_t>
std::vector<T> list_of(const Batch& batch, std::string_view name) {
  const auto values = batch.values<T>(name);
  return {values.begin(), values.end()};
}

}  // namespace weft::testing
