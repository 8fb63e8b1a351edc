// data/early_rows.cpp: gathers rows into scans, tokenizes them, and keeps them until the reader has
// passed.
#include "data/early_rows.h"

#include <algorithm>
#include <chrono>

#include "base/stop.h"
#include "data/file_watch.h"

namespace weft {
namespace {

constexpr auto kSignalPoll = std::chrono::milliseconds(50);  // for a signal
constexpr size_t kMostBytes = size_t{32} << 20;  // of tokens: bounds memory for long rows

}  // namespace

EarlyRows::EarlyRows(const RowSource& rows, const ExampleMaker& maker,
                     const std::vector<int64_t>& wanted)
    : rows_(rows), maker_(maker) {
  for (size_t i = 0; i < wanted.size(); ++i) need_.emplace(wanted[i], i);
  std::vector<int64_t> sorted = wanted;
  std::sort(sorted.begin(), sorted.end());
  for (const int64_t row : sorted) {
    // A new scan would decompress from extent_begin on: where that is before the current position
    // of the last scan, the last one continues.
    const int64_t begin = rows.extent_begin(row);
    const bool goes_on = !tasks_.empty() && begin <= tasks_.back().back();
    num_unpacked_ += row + 1 - (goes_on ? tasks_.back().back() + 1 : begin);
    if (!goes_on) tasks_.emplace_back();
    tasks_.back().push_back(row);
  }
  const auto first_need = [this](const Task& task) {
    size_t first = need_.size();
    for (const int64_t row : task) first = std::min(first, need_.at(row));
    return first;
  };
  std::sort(tasks_.begin(), tasks_.end(),
            [&](const Task& a, const Task& b) { return first_need(a) < first_need(b); });
}

void EarlyRows::work() {
  const ScopedAbandon abandon(is_stopped_);
  while (true) {
    size_t task;
    {
      const std::lock_guard lock(mutex_);
      if (is_stopped_ || next_task_ == tasks_.size()) return;
      task = next_task_++;
    }
    try {
      make(tasks_[task]);
    } catch (...) {
      stop();
    }
  }
}

void EarlyRows::make(const Task& task) {
  const auto scan = rows_.scan(task.front());
  Row row;
  Example example;
  int64_t at = task.front();
  for (const int64_t wanted : task) {
    for (; at <= wanted; ++at) {
      if (is_stopped_ || stop_signal() != 0) return stop();
      if (!scan->next(row)) return stop();
    }
    CachedRow made;
    made.dropped = !maker_.make(rows_, wanted, row, example);
    if (!made.dropped) {
      made.ids = example.ids;
      made.is_label = example.is_label;
      made.has_label = example.has_label();
    }
    made.num_source = example.num_source;
    made.num_nulls = example.num_nulls;
    made.truncated = example.truncated;
    made.source_cut = example.source_cut;
    made.target_cut = example.target_cut;
    made.repaired = row.repaired;
    check_local_unchanged(rows_.files_of(wanted, wanted + 1));  // as for a block
    put(wanted, std::move(made));
  }
}

void EarlyRows::put(int64_t row, CachedRow made) {
  const size_t bytes = made.ids.size() * (sizeof(int32_t) + 1);
  {
    const std::lock_guard lock(mutex_);
    if (is_passed_) return;
    made_.emplace(row, std::move(made));
    made_bytes_ += bytes;
    if (made_bytes_ > kMostBytes) is_stopped_ = true;
  }
  changed_.notify_all();
}

bool EarlyRows::read(int64_t row, CachedRow& out) {
  std::unique_lock lock(mutex_);
  if (!need_.contains(row)) {
    is_stopped_ = is_passed_ = true;
    made_.clear();
    return false;
  }
  while (!is_stopped_ && !made_.contains(row) && stop_signal() == 0)
    changed_.wait_for(lock, kSignalPoll);
  const auto found = made_.find(row);
  if (found == made_.end()) return false;
  out = found->second;
  return true;
}

void EarlyRows::stop() {
  {
    const std::lock_guard lock(mutex_);
    is_stopped_ = true;
  }
  changed_.notify_all();
}

}  // namespace weft
