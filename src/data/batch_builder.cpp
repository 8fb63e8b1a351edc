// data/batch_builder.cpp: which rows make a batch, their counts, and the state between batches.
#include "data/batch_builder.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "data/file_samples.h"
#include "data/pack_counts.h"

namespace weft {
namespace {

// Hash of sizes and times, and of sampled bytes unless `samples` is false. Earlier versions of weft
// stored a hash without samples.
uint64_t hash_of(const std::vector<FileInfo>& files, bool samples) {
  if (files.empty()) return 0;
  std::string text;
  for (const FileInfo& file : files) text += fmt::format("{} {}\n", file.size, file.time_ns);
  const uint64_t hash = hash_text(text, samples ? hash_samples(files) : 0);
  return std::max<uint64_t>(1, hash >> 1);  // a JSON integer, and never 0 ("unknown")
}

void check_options(const DataConfig& config, const StreamOptions& o) {
  require(o.global_batch >= 1, "train.global_batch: wanted at least 1, got {}", o.global_batch);
  require(o.dp >= 1 && o.dp_rank >= 0 && o.dp_rank < o.dp, "there is no rank {} of {}", o.dp_rank,
          o.dp);
  require(o.global_batch % o.dp == 0, "train.global_batch {} is not a multiple of parallel.dp {}",
          o.global_batch, o.dp);
  ensure(o.rows_per_turn == 0 || o.global_batch / o.dp % o.rows_per_turn == 0,
         "a rank's share must be whole turns");
  ensure(o.kind != ModelKind::kEncoderDecoder || o.decoder_start_id >= 0,
         "an encoder-decoder's rows need a decoder_start_id");
  require(config.layout == "pad" || config.layout == "dynamic" || config.layout == "pack",
          "data.layout: wanted pad, dynamic or pack, got {}", config.layout);
  require(config.layout != "pack" || config.mask_padding,
          "data.mask_padding: false cannot be combined with data.layout: pack");
}

}  // namespace

bool StreamOptions::takes(int64_t k) const {
  return k / (rows_per_turn > 0 ? rows_per_turn : global_batch / dp) % dp == dp_rank;
}

BatchBuilder::BatchBuilder(const DataConfig& config, const RowSource& rows,
                           const Tokenizer& tokenizer, const StreamOptions& options)
    : config_(config),
      rows_(rows),
      options_(options),
      maker_(config, tokenizer, options.vocab_size, options.kind),
      num_rows_(rows_taken(config, rows.size())),
      files_(hash_of(rows.files(), !options.once)),
      watch_(rows.files()),
      cache_(rows, maker_, num_rows_, options.cache),
      splits_by_row_(options.splits_by_row),
      split_(options.seed, num_rows_, config.eval_fraction, splits_by_row_),
      order_(make_order(1)) {
  check_options(config, options);
}

Order BatchBuilder::make_order(int64_t epoch) const {
  return {num_rows_, config_.shuffle && !options_.once, options_.seed, epoch};
}

void BatchBuilder::restore(const StreamState& state) {
  require(state.epoch >= 1 && state.position >= 0 && state.position <= num_rows_,
          "the checkpoint is at row {} of epoch {}, but the data has {} rows", state.position,
          state.epoch, num_rows_);
  require(state.part >= 0, "the checkpoint is at packed row {}", state.part);
  if (state.files != 0 && files_ != 0 && state.files != files_ &&
      state.files != hash_of(rows_.files(), false)) {
    throw UserError(
        "the data files differ from those of the checkpoint in size, time or content",
        "a resumed run needs the same rows: restore the files, or start over with --overwrite");
  }
  check_unchanged(rows_.files());
  epoch_ = state.epoch;
  position_ = state.position;
  part_ = state.part;
  splits_by_row_ = options_.splits_by_row || state.splits_by_row;
  split_ = EvalSplit(options_.seed, num_rows_, config_.eval_fraction, splits_by_row_);
  pack_.first = -1;
  order_ = make_order(epoch_);
}

void BatchBuilder::next_epoch() { restore({epoch_ + 1, 0, 0, files_, splits_by_row_}); }

bool BatchBuilder::is_member(int64_t row) const {
  if (options_.part == Part::kAll) return true;
  return split_.contains(row) == (options_.part == Part::kEval);
}

int64_t BatchBuilder::count_kept_rows() {
  int64_t kept = 0;
  cache_.each_kept([&](int64_t row, bool is_kept) { kept += is_kept && is_member(row); });
  return kept;
}

bool BatchBuilder::fill(Batch& out) {
  if (first_epoch_ == 0) first_epoch_ = epoch_;
  if (!cache_.is_started()) {
    cache_.start(order_.blocks_from(position_), order_.rows_from(position_, EarlyRows::kMostRows));
  }
  out.counted = DataCounters();
  out.epoch = epoch_;
  out.is_epoch_end = out.has_targets = false;
  num_taken_ = 0;
  row_numbers_.clear();
  longest_ = longest_source_ = 1;
  chosen_.clear();
  chosen_rows_.clear();
  if (packs()) {
    take_packed(out);
  } else {
    take_rows(out);
  }
  put_rows(out);
  watch_.check();
  out.after = state();
  return num_found_ > 0;
}

// With k rows of the global batch found, over all ranks: a whole batch, or the last one with
// `once`.
void BatchBuilder::finish_batch(int64_t k, Batch& out) {
  const bool is_given = options_.once || k == options_.global_batch;
  num_found_ = is_given ? k : 0;
  num_left_ = k - num_found_;
  if (is_given) return;
  if (options_.dp_rank == 0) out.counted.incomplete = k;
  num_taken_ = 0;
  row_numbers_.clear();
  chosen_.clear();
  chosen_rows_.clear();
}

// Counts what happened to a row; only on the first rank, so that ranks can be summed.
void BatchBuilder::count_row(int64_t row, int64_t length, Batch& out) {
  if (options_.dp_rank != 0) return;
  out.counted.dropped += info_.dropped;
  // Counts each row once: later epochs have the same rows.
  if (!info_.dropped && epoch_ == first_epoch_) {
    out.counted.truncated += info_.truncated;
    out.counted.sources_cut += info_.source_cut;
    out.counted.targets_cut += info_.target_cut;
  }
  out.counted.nulls += info_.num_nulls;
  out.counted.unanswered += !info_.dropped && maker_.is_unanswered(length - info_.num_source);
  const bool is_untargeted = !info_.dropped && !info_.has_label;
  out.counted.untargeted += is_untargeted;
  if (is_untargeted && !std::exchange(has_named_untargeted_, true)) {
    out.counted.first_untargeted = rows_.where(row);
  }
  out.counted.repaired += info_.repaired;
  if (info_.repaired && out.counted.first_repaired.size() < kNamedRows) {
    out.counted.first_repaired.push_back(rows_.where(row));
  }
}

// Looks a row up in the cache; false: it is not in the part, or dropped.
bool BatchBuilder::find_row(int64_t row, Batch& out) {
  if (!is_member(row)) return false;
  const int64_t length = cache_.read_length(row, info_);
  count_row(row, length, out);
  if (info_.dropped) return false;
  out.has_targets |= info_.has_label;
  const int64_t source = answers() ? info_.num_source : 0;
  longest_ = std::max(longest_, length - source);
  longest_source_ = std::max(longest_source_, source);
  return true;
}

void BatchBuilder::take_rows(Batch& out) {
  int64_t k = 0;
  for (; position_ < num_rows_ && k < options_.global_batch;) {
    const int64_t row = order_.at(position_++);
    if (!find_row(row, out)) continue;
    if (options_.takes(k++)) {
      if (taken_.size() <= num_taken_) taken_.emplace_back();
      cache_.read(row, taken_[num_taken_++]);
      row_numbers_.push_back(position_ - 1);
    }
  }
  finish_batch(k, out);
}

BatchBuilder::Packed BatchBuilder::load_pack(const Order& order, int64_t first,
                                             const LengthOf& length_of) const {
  Packed pack;
  pack.first = first;
  std::vector<int64_t> lengths;
  std::vector<PairLength> pairs;
  for (int64_t p = first; p < std::min(num_rows_, first + kPackRows); ++p) {
    const int64_t row = order.at(p);
    if (!is_member(row)) continue;
    const RowLength length = length_of(row);
    if (length.is_dropped) continue;
    pack.rows.push_back(row);
    if (answers()) {
      pairs.push_back({length.source, int64_t{length.tokens} - length.source});
    } else {
      lengths.push_back(length.tokens);
    }
  }
  pack.packed = answers() ? pack_pairs(pairs, {config_.seq_length, config_.target_length})
                          : pack_rows(lengths, config_.seq_length);
  return pack;
}

// Everything that an epoch's counts depend on, except the rows' tokens.
std::string BatchBuilder::pack_key(int64_t epoch) const {
  return fmt::format("{} {} {} {} {} {} {} {} {}", kPackRows, epoch, options_.seed, config_.shuffle,
                     config_.seq_length, answers() ? config_.target_length : 0,
                     static_cast<int>(options_.part), config_.eval_fraction, splits_by_row_);
}

PackSize BatchBuilder::measure_pack(int64_t epoch) {
  const std::string key = pack_key(epoch);
  if (const auto known = find_pack_size(cache_.folder(), key)) return *known;
  const PackSize size = count_packs(epoch);
  keep_pack_size(cache_.folder(), key, size);
  return size;
}

// Each thread takes one window of the order at a time, because the `pack` windows inside it read
// the same blocks.
PackSize BatchBuilder::count_packs(int64_t epoch) {
  constexpr int64_t kTurn = Order::kBlockRows * Order::kWindowBlocks;
  const Order order = make_order(epoch);
  std::atomic<int64_t> next{0};
  std::mutex mutex;
  PackSize size;
  std::exception_ptr error;
  const auto count = [&] {
    RowLengths lengths(cache_);
    PackSize mine;
    try {
      for (int64_t turn; (turn = next.fetch_add(kTurn)) < num_rows_;) {
        for (int64_t first = turn; first < std::min(num_rows_, turn + kTurn); first += kPackRows)
          add_pack(load_pack(order, first, [&](int64_t row) { return lengths.of(row); }), &mine);
      }
    } catch (...) {
      next = num_rows_;
      const std::lock_guard lock(mutex);
      if (!error) error = std::current_exception();
    }
    const std::lock_guard lock(mutex);
    size.rows += mine.rows;
    size.sequences += mine.sequences;
    size.tokens += mine.tokens;
  };
  std::vector<std::jthread> threads;
  const int64_t num_turns = (num_rows_ + kTurn - 1) / kTurn;
  for (int64_t i = 1; i < std::min<int64_t>(cache_.num_threads(), num_turns); ++i)
    threads.emplace_back(count);
  count();
  threads.clear();  // joins
  if (error) std::rethrow_exception(error);
  size.positions = size.sequences * (config_.seq_length + (answers() ? config_.target_length : 0));
  return size;
}

void BatchBuilder::add_pack(const Packed& window, PackSize* size) {
  size->rows += static_cast<int64_t>(window.rows.size());
  size->sequences += static_cast<int64_t>(window.packed.size());
  for (const PackedRow& row : window.packed) {
    for (const Segment& s : row) size->tokens += s.source_length + s.length;
  }
}

// Reads lengths of cached rows, and of early rows that are available before their blocks.
BatchBuilder::LengthOf BatchBuilder::length_in_cache() {
  return [this, info = CachedRow()](int64_t row) mutable {
    const int64_t length = cache_.read_length(row, info);
    return RowLength{static_cast<uint32_t>(length), static_cast<uint32_t>(info.num_source),
                     info.dropped};
  };
}

// Counts the rows of a window once, when it begins.
void BatchBuilder::count_window(Batch& out) {
  for (int64_t p = position_; p < std::min(num_rows_, position_ + kPackRows); ++p) {
    find_row(order_.at(p), out);
  }
  for (const PackedRow& row : pack_.packed) {
    for (const Segment& s : row) {
      out.counted.split += options_.dp_rank == 0 && s.begin > 0 && s.begin <= config_.seq_length;
    }
  }
}

void BatchBuilder::take_packed(Batch& out) {
  int64_t k = 0;
  while (position_ < num_rows_ && k < options_.global_batch) {
    if (pack_.first != position_) pack_ = load_pack(order_, position_, length_in_cache());
    require(part_ <= static_cast<int64_t>(pack_.packed.size()),
            "the checkpoint is at packed row {} of {}", part_, pack_.packed.size());
    if (part_ == 0) count_window(out);
    for (; part_ < static_cast<int64_t>(pack_.packed.size()) && k < options_.global_batch;
         ++part_) {
      if (!options_.takes(k++)) continue;
      chosen_.push_back(pack_.packed[static_cast<size_t>(part_)]);
      row_numbers_.push_back(position_ / kPackRows << 32 | part_);  // windows of any number of rows
      chosen_rows_.emplace_back();
      for (const Segment& s : chosen_.back()) {
        chosen_rows_.back().push_back(pack_.rows[static_cast<size_t>(s.row)]);
      }
    }
    if (part_ == static_cast<int64_t>(pack_.packed.size())) {
      position_ = std::min(num_rows_, position_ + kPackRows);
      part_ = 0;
    }
  }
  finish_batch(k, out);
}

}  // namespace weft
