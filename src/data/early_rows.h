// data/early_rows.h: the first rows of an order, made alone, before the blocks that hold them.
//
// A shuffled batch takes its rows from all over a window of 131,072, so the first step would wait
// until nearly all of them are tokenized. Unpacking rows is far cheaper than tokenizing them: here
// the files are gone through once for the first thousand rows alone. They are kept in memory, for
// this process, and only until the reader has passed them.
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

  // `wanted` in the order of need. rows and maker must outlive this.
  EarlyRows(const RowSource& rows, const ExampleMaker& maker, const std::vector<int64_t>& wanted);

  int64_t num_unpacked() const { return num_unpacked_; }  // rows passed to reach the wanted ones
  // Makes rows until none is left; for any number of threads. Throws nothing: over a bad row or a
  // file that changed it gives up; whoever makes the row's block meets it again and reports it.
  void work();
  // Waits for the row. False where it is none of these, or is not made: its block has to be waited
  // for. A reader that asks for another row has passed these, and they are let go.
  bool read(int64_t row, CachedRow& out);
  bool is_passed() const { return is_passed_; }
  void stop();  // nothing more is made: work() and read() return soon

 private:
  using Task = std::vector<int64_t>;  // rows that one scan reaches, ascending
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
