// tests/batch_lists.h: batches from plain lists, and lists from batches.
#pragma once

#include <string_view>
#include <vector>

#include "data/batch.h"
#include "tensor/names.h"

namespace weft::testing {

// Rows one after the other; empty lists are not tensors of the batch.
struct BatchLists {
  std::vector<int32_t> ids, targets, lengths, positions;
  std::vector<int64_t> numbers;  // of rows, in the batch's epoch

  void put(int64_t T, Batch* batch) const {
    batch->num_rows = static_cast<int64_t>(lengths.size());
    batch->padded = {T, 0};
    batch->set(names::kIds, T, ids);
    batch->set(names::kTargets, T, targets);
    batch->set(names::kLengths, 1, lengths);
    if (!positions.empty()) batch->set(names::kPositions, T, positions);
    std::vector<int64_t> rows;
    for (int64_t number : numbers) rows.insert(rows.end(), {batch->epoch, number});
    if (!rows.empty()) batch->set(names::kRows, 2, rows);
  }
};

template <typename T = int32_t>
std::vector<T> list_of(const Batch& batch, std::string_view name) {
  const auto values = batch.values<T>(name);
  return {values.begin(), values.end()};
}

}  // namespace weft::testing
