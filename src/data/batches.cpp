// data/batches.cpp: the prefetching thread, and the bounded queue between it and the step.
#include "data/batches.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "base/stop.h"
#include "data/batch_builder.h"

namespace weft {
namespace {

constexpr auto kPoll = std::chrono::milliseconds(50);  // polls for a signal

[[noreturn]] void refuse_few_rows(int64_t num_rows, int64_t global_batch, bool is_packed) {
  throw UserError(
      fmt::format("the data {}, fewer than one global batch of {}",
                  is_packed ? fmt::format("fills {} packed rows of seq_length", num_rows)
                            : fmt::format("has {} usable rows", num_rows),
                  global_batch),
      "lower train.global_batch, or give more rows (data.fraction, data.limit, data.drop_empty)");
}

}  // namespace

int64_t rows_taken(const DataConfig& config, int64_t num_rows) {
  require(config.fraction > 0 && config.fraction <= 1,
          "data.fraction: wanted more than 0 and at most 1, got {}", config.fraction);
  require(config.limit >= 0, "data.limit: wanted 0 (all) or more, got {}", config.limit);
  int64_t taken = std::llround(static_cast<double>(num_rows) * config.fraction);
  if (config.limit > 0) taken = std::min(taken, config.limit);
  return std::min(taken, num_rows);
}

double PackSize::efficiency() const { return tokens_per_position(tokens, positions); }

// The ring: the thread fills slots_[made_ % N], next() swaps slots_[taken_ % N] out. A batch is
// released only when the next one is filled, or known not to exist: so that is_epoch_end is true
// exactly on the last batch, and a state saved there is at the next epoch.
class BatchStream::Producer {
 public:
  Producer(const DataConfig& config, const RowSource& rows, const Tokenizer& tokenizer,
           const StreamOptions& options)
      : builder(config, rows, tokenizer, options),
        slots_(static_cast<size_t>(std::max(options.prefetch, 2))) {}
  ~Producer() {
    builder.abandon();  // or the thread would keep waiting for its rows
    stop();
  }

  void start() {
    made_ = taken_ = 0;
    done_ = stop_ = false;
    error_ = nullptr;
    thread_ = std::thread([this] { work(); });
  }

  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

  bool is_started() const { return thread_.joinable(); }

  bool take(Batch& out) {
    std::unique_lock lock(mutex_);
    while (taken_ == made_ && !done_ && stop_signal() == 0) changed_.wait_for(lock, kPoll);
    if (taken_ < made_) {
      std::swap(out, slots_[taken_ % slots_.size()]);
      ++taken_;
      lock.unlock();
      changed_.notify_all();
      return true;
    }
    if (done_ && error_) std::rethrow_exception(error_);
    if (!done_) throw_if_stopped();
    return false;
  }

  BatchBuilder builder;

 private:
  void work() {
    try {
      while (run_epoch() && !builder.once()) builder.next_epoch();
    } catch (...) {
      error_ = std::current_exception();  // read under the lock after done_
    }
    {
      const std::lock_guard lock(mutex_);
      done_ = true;
    }
    changed_.notify_all();
  }

  // False where stop() was called.
  bool run_epoch() {
    const bool is_whole_epoch = builder.state().position == 0 && builder.state().part == 0;
    bool has_batch = builder.fill(current_);
    if (!has_batch && is_whole_epoch && !builder.once()) {
      refuse_few_rows(builder.num_left(), builder.global_batch(), builder.packs());
    }
    while (has_batch) {
      const bool has_next = builder.fill(next_);
      if (!has_next) {
        current_.is_epoch_end = true;
        current_.counted.add(next_.counted);
        if (!builder.once()) {
          current_.after = {current_.epoch + 1, 0, 0, current_.after.files,
                            current_.after.splits_by_row};
        }
      }
      if (!release()) return false;
      std::swap(current_, next_);
      has_batch = has_next;
    }
    return true;
  }

  bool release() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return stop_ || made_ - taken_ < slots_.size(); });
    if (stop_) return false;
    std::swap(current_, slots_[made_ % slots_.size()]);
    ++made_;
    lock.unlock();
    changed_.notify_all();
    return true;
  }

  std::vector<Batch> slots_;
  Batch current_, next_;  // used only by the thread
  std::thread thread_;
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t made_ = 0, taken_ = 0;
  bool done_ = false, stop_ = false;
  std::exception_ptr error_;
};

BatchStream::BatchStream(const DataConfig& config, const RowSource& rows,
                         const Tokenizer& tokenizer, const StreamOptions& options)
    : producer_(std::make_unique<Producer>(config, rows, tokenizer, options)) {
  const int64_t num_rows = producer_->builder.num_raw_rows();
  // A few long rows may fill many packed ones.
  if (!options.once && !producer_->builder.packs() && num_rows < options.global_batch) {
    refuse_few_rows(num_rows, options.global_batch, false);
  }
}

BatchStream::~BatchStream() = default;

bool BatchStream::next(Batch& out) {
  if (!producer_->is_started()) producer_->start();
  if (!producer_->take(out)) return false;
  state_ = out.after;
  counters_.add(out.counted);
  return true;
}

void BatchStream::restore(const StreamState& state) {
  producer_->stop();
  producer_->builder.restore(state);
  producer_->start();
  state_ = state;
}

void BatchStream::require_targets(const StreamState& from, int64_t most) {
  const TargetSearch search = producer_->builder.search_target(from, most);
  if (!search.is_found) refuse_without_targets(producer_->builder.config(), search);
}

StreamState BatchStream::state() const { return state_; }
const DataCounters& BatchStream::counters() const { return counters_; }
int64_t BatchStream::num_raw_rows() const { return producer_->builder.num_raw_rows(); }

int64_t BatchStream::count_kept_rows() const { return producer_->builder.count_kept_rows(); }

int64_t BatchStream::count_steps_per_epoch(int64_t epoch) const {
  BatchBuilder& builder = producer_->builder;
  const int64_t rows = builder.packs() ? builder.measure_pack(epoch).sequences : count_kept_rows();
  if (rows < builder.global_batch()) refuse_few_rows(rows, builder.global_batch(), builder.packs());
  return rows / builder.global_batch();
}

int64_t BatchStream::count_steps(int64_t num_epochs) const {
  if (!producer_->builder.packs()) return num_epochs * count_steps_per_epoch();
  int64_t steps = 0;
  for (int64_t epoch = 1; epoch <= num_epochs; ++epoch) steps += count_steps_per_epoch(epoch);
  return steps;
}

PackSize BatchStream::measure_pack(int64_t epoch) const {
  return producer_->builder.measure_pack(epoch);
}

}  // namespace weft
