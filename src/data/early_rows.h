// data/early_rows.h: the first rows of an order, tokenized before their blocks.
//
// A shuffled batch takes its rows from all over a window of 131,072, so the first step would wait
// until nearly all of them are tokenized. Decompressing rows is far cheaper than tokenizing them:
// this scans the files once for only the first thousand rows. They are kept in memory, for this
// process, until the reader has passed them.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "data/cached_row.h"
#include "data/example.h"
#include "data/rows.h"

namespace weft {

class EarlyRows {
 public:
  static constexpr int64_t kMostRows = 1024;

  // `wanted` in order of need. rows and maker must outlive this.
  EarlyRows(const RowSource& rows, const ExampleMaker& maker, const std::vector<int64_t>& wanted);

  int64_t num_unpacked() const { return num_unpacked_; }  // rows passed to reach the wanted ones
  // Tokenizes rows until none is left; callable from any number of threads. Does not throw: it
  // gives up at a bad row or a changed file; whoever builds the row's block hits the same error and
  // reports it.
  void work();
  // Waits for the row. False where it is not one of these, or could not be made: wait for its
  // block. A request for any other row means that the reader has passed these, and frees them.
  bool read(int64_t row, CachedRow& out);
  bool is_passed() const { return is_passed_; }
  void stop();  // work() and read() return soon

 private:
  using Task = std::vector<int64_t>;  // rows of one scan, ascending
  void make(const Task& task);
  void put(int64_t row, CachedRow made);

  const RowSource& rows_;
  const ExampleMaker& maker_;
  std::vector<Task> tasks_;  // the most wanted first
  int64_t num_unpacked_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_;
  size_t next_task_ = 0;
  std::unordered_map<int64_t, CachedRow> made_;
  std::unordered_map<int64_t, size_t> need_;  // row to its place in the order
  size_t made_bytes_ = 0;
  std::atomic<bool> is_stopped_{false}, is_passed_{false};
};

}  // namespace weft
