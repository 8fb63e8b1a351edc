// data/token_cache.cpp: threads that build blocks, and readers that wait for them.
//
// The bytes of a block: a table of its rows (where its ids end, the length of its source, flags),
// then all their ids, whose top bit marks a label.
#include "data/token_cache.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mapped_files.h"
#include "base/stop.h"
#include "data/cache_store.h"
#include "data/file_samples.h"
#include "data/file_watch.h"

namespace weft {
namespace {

constexpr int64_t kRunBlocks = 16;  // one scan builds at least this many, where they are needed
constexpr int64_t kMaxParts = 4;    // of one extent, for as many threads
// Rows that may be decompressed to reach the early ones: eight windows of the order. Decompressing
// a row takes about a tenth of the time of tokenizing it.
constexpr int64_t kMostUnpacked = int64_t{8} * 16 * 8192;
constexpr uint32_t kLabel = 1u << 31;
constexpr auto kCachePoll = std::chrono::milliseconds(2);
constexpr auto kReportEvery = std::chrono::seconds(5);
// After growing by this fraction of the limit, a cache triggers eviction of others.
constexpr int64_t kTrimParts = 64, kLeastTrim = 1 << 16;

struct RowEntry {
  uint32_t end;  // in ids
  uint32_t num_source;
  uint16_t num_nulls;
  uint8_t flags;
  uint8_t unused;
  uint32_t checksum;  // of the ids and of the fields above
};
enum RowFlag : uint8_t {
  kDropped = 1,
  kTruncated = 2,
  kRepaired = 4,
  kHasLabel = 8,
  kSourceCut = 16,
  kTargetCut = 32
};

// A block's checksum is verified once; a row's on every read, since other processes have the files
// open: one that was truncated and grows again reads as zeros.
uint64_t fields_of(const RowEntry& entry) {
  return uint64_t{entry.num_source} << 24 | uint64_t{entry.num_nulls} << 8 | entry.flags;
}

uint32_t checksum_of(uint64_t fields, int64_t row, const void* words, size_t count) {
  const uint64_t seed = fields * 0x9E3779B97F4A7C15u + static_cast<uint64_t>(row);
  return static_cast<uint32_t>(hash_bytes(words, count * sizeof(uint32_t), seed) >> 32);
}

// Compressed files and tables are about four times as large when decoded.
int64_t rows_per_block(const RowSource& rows) {
  int64_t bytes = 0;
  for (const FileInfo& file : rows.files())
    bytes += file.size * (is_packed(file.path) || is_table_file(file.path) ? 4 : 1);
  const int64_t per_row = std::max<int64_t>(1, bytes / std::max<int64_t>(1, rows.size()));
  const auto fitting = static_cast<uint64_t>(TokenCache::kBlockBytes / per_row);
  return std::clamp<int64_t>(static_cast<int64_t>(std::bit_floor(fitting)), 1,
                             TokenCache::kMostBlockRows);
}

uint64_t key_of(const RowSource& rows, const ExampleMaker& maker, int64_t num_rows) {
  std::string text =
      fmt::format("weft tokens 5\n{}\n{}\n{}\n", num_rows, rows_per_block(rows), maker.describe());
  for (const FileInfo& file : rows.files()) {
    text += identity_of(file) + "\n";
  }
  return hash_text(text);
}

// Empty: in memory.
std::filesystem::path folder_of(const RowSource& rows, uint64_t key, const CacheOptions& options) {
  int64_t bytes = 0;
  bool is_plain = true;
  for (const FileInfo& file : rows.files()) {
    bytes += file.size;
    is_plain = is_plain && !is_uri(file.path) && !is_packed(file.path);
  }
  if (rows.files().empty() || (is_plain && bytes < options.small_bytes)) return {};
  return (options.folder.empty() ? cache_root() : options.folder) / hash_hex(key);
}

// For `weft cache`.
std::string about(const RowSource& rows, int64_t num_rows) {
  const std::vector<FileInfo> files = rows.files();
  std::string names = files.empty() ? "" : files[0].path;
  if (files.size() > 1) names += fmt::format(" and {} more", files.size() - 1);
  Json json;
  json.set("files", names);
  json.set("rows", num_rows);
  return json.dump() + "\n";
}

// Estimate for a new cache: a 4-byte token is about four bytes of text.
void evict_for(const RowSource& rows, const std::filesystem::path& folder, int64_t max_bytes) {
  int64_t bytes = 0;
  for (const FileInfo& file : rows.files()) bytes += file.size;
  trim_caches(folder.parent_path(), folder, bytes, max_bytes);
}

int default_threads() {
  return std::clamp(static_cast<int>(std::thread::hardware_concurrency()) / 2, 1, 16);
}

}  // namespace

TokenCache::TokenCache(const RowSource& rows, const ExampleMaker& maker, int64_t num_rows,
                       const CacheOptions& options)
    : rows_(rows),
      maker_(maker),
      num_rows_(num_rows),
      block_rows_(rows_per_block(rows)),
      num_blocks_((num_rows + block_rows_ - 1) / block_rows_),
      num_threads_(options.num_threads > 0 ? options.num_threads : default_threads()),
      max_bytes_(options.max_bytes > 0 ? options.max_bytes : max_cache_bytes()),
      file_(folder_of(rows, key_of(rows, maker, num_rows), options), key_of(rows, maker, num_rows),
            num_blocks_),
      claimed_(static_cast<size_t>(num_blocks_)),
      checked_(static_cast<size_t>(num_blocks_)) {}

void TokenCache::abandon() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = abandoned_ = true;
  }
  changed_.notify_all();
  if (early_) early_->stop();
}

TokenCache::~TokenCache() {
  abandon();
  for (auto* threads : {&threads_, &early_threads_}) {
    for (std::thread& thread : *threads) thread.join();
  }
}

bool TokenCache::is_in_memory() const { return file_.folder().empty(); }

void TokenCache::start(const std::vector<int64_t>& first_rows, const std::vector<int64_t>& early) {
  const std::lock_guard lock(mutex_);
  if (started_) return;
  std::vector<uint8_t> seen(static_cast<size_t>(num_blocks_));
  const auto add = [&](int64_t block) {
    if (std::exchange(seen[static_cast<size_t>(block)], uint8_t{1}) == 0) order_.push_back(block);
  };
  for (const int64_t row : first_rows) add(row / block_rows_);
  for (int64_t block = 0; block < num_blocks_; ++block) add(block);
  plan_early(early);
  if (!start_writing() && early_) {
    for (int i = 0; i < num_threads_; ++i) {
      early_threads_.emplace_back([this] { early_->work(); });
    }
  }
  started_ = true;
}

// Under the lock. Not where their blocks exist or soon will, or where reaching the rows takes long:
// one row of a compressed text costs all before it.
void TokenCache::plan_early(const std::vector<int64_t>& early) {
  const auto is_there = [this](int64_t row) {
    return file_.state(row / block_rows_) == TokenFile::kWhole;
  };
  if (early.empty() || is_in_memory()) return;
  if (file_.is_open() && std::all_of(early.begin(), early.end(), is_there)) return;
  auto planned = std::make_unique<EarlyRows>(rows_, maker_, early);
  if (planned->num_unpacked() <= kMostUnpacked) early_ = std::move(planned);
}

// Under the lock. False where another process writes.
bool TokenCache::start_writing() {
  if (!threads_.empty()) return true;
  if (!file_.try_lock()) return false;
  if (file_.was_made() && !is_in_memory()) {
    write_file_atomic(file_.folder() / kCacheAbout, about(rows_, num_rows_));
    evict_for(rows_, file_.folder(), max_bytes_);
  }
  if (file_.was_reset()) {
    log_warning("token cache {}: not usable, rebuilding it", file_.folder().string());
  }
  if (file_.num_lost() > 0) {
    log_warning("token cache {}: {} blocks of {} rows are lost, rebuilding them",
                file_.folder().string(), file_.num_lost(), block_rows_);
  }
  for (int64_t b = 0; b < num_blocks_; ++b) num_absent_ += file_.state(b) != TokenFile::kWhole;
  num_working_ = num_threads_;
  for (int i = 0; i < num_threads_; ++i) {
    threads_.emplace_back([this] {
      if (early_) early_->work();
      work();
    });
  }
  return true;
}

int64_t TokenCache::num_made() const {
  int64_t rows = 0;
  for (int64_t b = 0; b < num_blocks_; ++b) {
    if (file_.state(b) == TokenFile::kWhole)
      rows += std::min(block_rows_, num_rows_ - b * block_rows_);
  }
  return rows;
}

// ------------------------------------------------------------------------------- the threads
void TokenCache::work() {
  const ScopedAbandon abandon(stop_);
  int64_t begin = 0, end = 0;
  try {
    while (take_run(begin, end)) make_run(begin, end);
  } catch (...) {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::current_exception();
    stop_ = true;
  }
  {
    // Nothing more is written here: a process that waits for a block hits the error itself.
    const std::lock_guard lock(mutex_);
    if (--num_working_ == 0 && error_) file_.unlock();
  }
  changed_.notify_all();
}

// The next unclaimed blocks, as far as one scan should go. Waits where nothing is needed; false at
// the end.
bool TokenCache::take_run(int64_t& begin, int64_t& end) {
  std::unique_lock lock(mutex_);
  const auto is_wanted = [this](int64_t block) {
    return !claimed_[static_cast<size_t>(block)] && file_.state(block) != TokenFile::kWhole;
  };
  while (!stop_ && stop_signal() == 0) {
    if (!urgent_.empty()) {
      begin = urgent_.back();
      end = begin + 1;
      urgent_.pop_back();
      return true;
    }
    while (next_ < order_.size() && !is_wanted(order_[next_])) ++next_;
    if (next_ < order_.size()) {
      begin = order_[next_];
      const int64_t row = begin * block_rows_;
      const int64_t extent = (rows_.extent_end(row) - row + block_rows_ - 1) / block_rows_;
      const int64_t parts = std::min<int64_t>(num_threads_, kMaxParts);
      const int64_t most = std::max(kRunBlocks, (extent + parts - 1) / parts);
      for (end = begin; end < std::min(num_blocks_, begin + most) && is_wanted(end); ++end) {
        claimed_[static_cast<size_t>(end)] = 1;
      }
      return true;
    }
    changed_.wait(lock);
  }
  return false;
}

void TokenCache::make_run(int64_t begin, int64_t end) {
  const int64_t first = begin * block_rows_;
  const auto scan = rows_.scan(first);
  std::string bytes;
  for (int64_t block = begin; block < end; ++block) {
    const int64_t end_row = std::min(num_rows_, (block + 1) * block_rows_);
    // From the row before the block on: the scan was there, and a file that grew would insert its
    // new rows here. Other files do not affect the block.
    const auto files = rows_.files_of(std::max(first, block * block_rows_ - 1), end_row);
    bool made = false;
    try {
      made = make_block(*scan, block, bytes);
    } catch (const UserError&) {
      check_unchanged(files);  // reports the change rather than a bad row caused by it
      throw;
    }
    if (!made) return;
    // What was read matches the key only if nobody wrote meanwhile: otherwise it is discarded.
    check_local_unchanged(files);
    file_.append(block, end_row - block * block_rows_, bytes);
    changed_.notify_all();
    keep_bound(static_cast<int64_t>(bytes.size()));
  }
  const int64_t end_row = std::min(num_rows_, end * block_rows_);
  check_remote_unchanged(rows_.files_of(first, end_row));
}

// After each block: the tokens' size is only known once they exist.
void TokenCache::keep_bound(int64_t grown_bytes) {
  if (is_in_memory()) return;
  const std::lock_guard lock(bound_mutex_);
  grown_bytes_ += grown_bytes;
  if (--num_absent_ > 0 && grown_bytes_ < std::max(kLeastTrim, max_bytes_ / kTrimParts)) return;
  grown_bytes_ = 0;
  const int64_t over = trim_caches(file_.folder().parent_path(), file_.folder(), 0, max_bytes_);
  if (over == 0 || std::exchange(has_warned_, true)) return;
  log_warning(
      "token cache {}: this one and others in use are {:.3g} GB over the limit of {:.3g} GB "
      "(WEFT_CACHE_MAX)",
      file_.folder().string(), static_cast<double>(over) / 1e9,
      static_cast<double>(max_bytes_) / 1e9);
}

// Returns false where the work was cancelled midway: long rows take seconds.
bool TokenCache::make_block(RowScan& scan, int64_t block, std::string& bytes) {
  const int64_t first = block * block_rows_, end = std::min(num_rows_, first + block_rows_);
  std::vector<RowEntry> table;
  std::vector<uint32_t> ids;
  Row row;
  Example example;
  for (int64_t i = first; i < end; ++i) {
    if (stop_ || stop_signal() != 0) return false;
    // where() may count lines from the start of the file: call it only for a bad row.
    if (!scan.next(row)) {
      throw UserError(
          fmt::format("{}: the file ends before this row; was it changed?", rows_.where(i)));
    }
    const bool kept = maker_.make(rows_, i, row, example);
    const size_t begin = ids.size();
    for (size_t t = 0; kept && t < example.ids.size(); ++t) {
      ids.push_back(static_cast<uint32_t>(example.ids[t]) | (example.is_label[t] ? kLabel : 0));
    }
    if (ids.size() >= UINT32_MAX)
      throw UserError(
          fmt::format("{}: more than 4 billion tokens in {} rows", rows_.where(i), block_rows_));
    const int flags = (kept ? 0 : kDropped) | (example.truncated ? kTruncated : 0) |
                      (example.source_cut ? kSourceCut : 0) |
                      (example.target_cut ? kTargetCut : 0) | (row.repaired ? kRepaired : 0) |
                      (kept && example.has_label() ? kHasLabel : 0);
    table.push_back({static_cast<uint32_t>(ids.size()), static_cast<uint32_t>(example.num_source),
                     static_cast<uint16_t>(example.num_nulls), static_cast<uint8_t>(flags), 0, 0});
    table.back().checksum =
        checksum_of(fields_of(table.back()), i, ids.data() + begin, ids.size() - begin);
  }
  const size_t table_bytes = table.size() * sizeof(RowEntry);
  bytes.resize(table_bytes + ids.size() * sizeof(uint32_t));
  std::memcpy(bytes.data(), table.data(), table_bytes);
  if (!ids.empty()) {
    std::memcpy(bytes.data() + table_bytes, ids.data(), ids.size() * sizeof(uint32_t));
  }
  return true;
}

// ------------------------------------------------------------------------------- the readers
// The first read of a block in this process checks its bytes.
bool TokenCache::check_block(int64_t block) {
  if (checked_[static_cast<size_t>(block)]) return true;
  std::string bytes;
  const bool good = file_.read_block(block, bytes);
  if (good) {
    checked_[static_cast<size_t>(block)] = 1;
    return true;
  }
  log_warning("token cache {}: rows {} to {} are damaged, rebuilding them", file_.folder().string(),
              block * block_rows_ + 1, std::min(num_rows_, (block + 1) * block_rows_));
  file_.mark_damaged(block);
  return false;
}

void TokenCache::wait_for(int64_t block) {
  std::unique_lock lock(mutex_);
  auto reported = std::chrono::steady_clock::now();
  while (true) {
    const bool is_open = file_.is_open();
    if (is_open && file_.state(block) == TokenFile::kWhole && check_block(block)) return;
    const bool writes = start_writing();
    if (writes && file_.state(block) == TokenFile::kDamaged) {
      uint8_t& claim = claimed_[static_cast<size_t>(block)];
      if (claim == 2) {
        throw RunError(fmt::format("token cache {}: data written there cannot be read back",
                                   file_.folder().string()),
                       "set WEFT_CACHE to a folder on another disk");
      }
      claim = 2;  // retried once
      file_.clear(block);
      urgent_.push_back(block);
      ++num_rebuilt_;
      changed_.notify_all();
    }
    if (error_ && file_.state(block) != TokenFile::kWhole) std::rethrow_exception(error_);
    check_mapped_files();  // the index may have been truncated
    throw_if_stopped();
    if (abandoned_) throw StopError(0);
    changed_.wait_for(lock, kCachePoll);
    if (const auto now = std::chrono::steady_clock::now();
        now - reported > kReportEvery && file_.is_open()) {
      reported = now;
      log_info("data: {} of {} rows are tokenized", num_made(), num_rows_);
    }
  }
}

TokenCache::Place TokenCache::find(int64_t row, CachedRow& out) {
  ensure(row >= 0 && row < num_rows_, "row outside the cache");
  if (!started_) start({});
  const int64_t block = row / block_rows_, i = row % block_rows_;
  wait_for(block);
  const int64_t num_rows = std::min(block_rows_, num_rows_ - block * block_rows_);
  RowEntry entries[2] = {};  // of the previous row and of this one
  const size_t count = i == 0 ? 1 : 2;
  file_.read_part(block, (static_cast<uint64_t>(i) + 1 - count) * sizeof(RowEntry),
                  count * sizeof(RowEntry), entries + 2 - count);
  out.num_source = entries[1].num_source;
  out.num_nulls = entries[1].num_nulls;
  out.dropped = entries[1].flags & kDropped;
  out.truncated = entries[1].flags & kTruncated;
  out.source_cut = entries[1].flags & kSourceCut;
  out.target_cut = entries[1].flags & kTargetCut;
  out.repaired = entries[1].flags & kRepaired;
  out.has_label = entries[1].flags & kHasLabel;
  const uint64_t ids = static_cast<uint64_t>(num_rows) * sizeof(RowEntry);
  const bool is_inside = entries[0].end <= entries[1].end &&
                         ids + entries[1].end * sizeof(uint32_t) <= file_.block_bytes(block);
  if (!is_inside) throw_changed();
  return {block, ids + entries[0].end * sizeof(uint32_t), entries[1].end - entries[0].end,
          fields_of(entries[1]), entries[1].checksum};
}

void TokenCache::throw_changed() const {
  throw RunError(fmt::format("token cache {} changed while it was in use",
                             (file_.folder() / "tokens").string()),
                 "run the same command again: lost blocks are rebuilt");
}

// The block is checked first: no waiting for what is in the cache.
bool TokenCache::read_early(int64_t row, CachedRow& out) {
  if (!started_) start({});
  if (!early_ || early_->is_passed()) return false;
  {
    const std::lock_guard lock(mutex_);
    if (file_.is_open() && file_.state(row / block_rows_) == TokenFile::kWhole) return false;
  }
  if (!early_->read(row, out)) return false;  // also at a stop: waiting for the block reports it
  ++num_early_;
  return true;
}

int64_t TokenCache::read_length(int64_t row, CachedRow& out) {
  if (read_early(row, out)) return static_cast<int64_t>(out.ids.size());
  return static_cast<int64_t>(find(row, out).count);
}

void TokenCache::read(int64_t row, CachedRow& out) {
  if (read_early(row, out)) return;
  const Place at = find(row, out);
  out.ids.resize(at.count);
  out.is_label.resize(at.count);
  file_.read_part(at.block, at.begin, at.count * sizeof(uint32_t), out.ids.data());
  if (checksum_of(at.fields, row, out.ids.data(), at.count) != at.checksum) throw_changed();
  for (size_t t = 0; t < at.count; ++t) {
    const auto word = static_cast<uint32_t>(out.ids[t]);
    out.is_label[t] = static_cast<uint8_t>(word >> 31);
    out.ids[t] = static_cast<int32_t>(word & ~kLabel);
  }
}

std::vector<RowLength> TokenCache::read_lengths(int64_t block) {
  if (!started_) start({});
  wait_for(block);
  const int64_t count = std::min(block_rows_, num_rows_ - block * block_rows_);
  std::vector<RowEntry> table(static_cast<size_t>(count));
  file_.read_part(block, 0, table.size() * sizeof(RowEntry), table.data());
  std::vector<RowLength> lengths;
  lengths.reserve(table.size());
  uint32_t begin = 0;
  for (const RowEntry& entry : table) {
    if (entry.end < begin) throw_changed();
    lengths.push_back({entry.end - begin, entry.num_source, (entry.flags & kDropped) != 0});
    begin = entry.end;
  }
  return lengths;
}

void TokenCache::each_kept(const std::function<void(int64_t row, bool kept)>& fn) {
  for (int64_t block = 0; block < num_blocks_; ++block) {
    const int64_t first = block * block_rows_;
    const std::vector<RowLength> rows = read_lengths(block);
    for (size_t i = 0; i < rows.size(); ++i)
      fn(first + static_cast<int64_t>(i), !rows[i].is_dropped);
  }
}

}  // namespace weft
