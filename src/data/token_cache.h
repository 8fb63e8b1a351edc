// data/token_cache.h: the examples of all rows, built once per node by background threads.
//
// Rows are stored in blocks of 512. Blocks are smaller where 512 rows of average length exceed 2
// MiB, because a thread holds one block of rows and its tokens in memory. Threads build the blocks
// in the order given to start(); read() waits for the block of its row. Several processes may have
// the same cache open: one process writes, the others wait. If the writer dies, the next waiting
// process takes over.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "data/cache_store.h"
#include "data/cached_row.h"
#include "data/early_rows.h"
#include "data/example.h"
#include "data/rows.h"
#include "data/token_file.h"

namespace weft {

struct CacheOptions {
  std::filesystem::path
      folder;           // of all caches; empty: the user's (WEFT_CACHE, or the cache folder)
  int num_threads = 0;  // 0: half of the cores
  // Plain local files smaller than this in total are kept in memory: no folder, no sharing.
  int64_t small_bytes = int64_t{8} << 20;
  int64_t max_bytes = 0;  // of all caches together; 0: WEFT_CACHE_MAX, or its default
};

// Properties of a row in the cache.
struct RowLength {
  uint32_t tokens = 0, source = 0;
  bool is_dropped = false;
};

class TokenCache {
 public:
  static constexpr int64_t kMostBlockRows = 512;
  static constexpr int64_t kBlockBytes = int64_t{2} << 20;

  // Rows [0, num_rows) of the source. rows and maker must outlive the cache.
  TokenCache(const RowSource& rows, const ExampleMaker& maker, int64_t num_rows,
             const CacheOptions& options);
  ~TokenCache();

  // Starts building blocks; `first_rows` gives the order in which they are needed (one row of each
  // is enough); empty: file order. `early` are the rows that will be read first, in order: where
  // their blocks do not exist yet, they are tokenized separately, so that nobody waits for the
  // blocks. Called once; read() calls it otherwise.
  void start(const std::vector<int64_t>& first_rows, const std::vector<int64_t>& early = {});
  bool is_started() const { return started_; }
  // Stops: the threads finish their current row, and waiting readers throw.
  void abandon();
  // Waits until the row is available. Rethrows a thread's exception about it; StopError where a
  // signal asks to stop (base/stop.h) or abandon() was called. Thread-safe.
  void read(int64_t row, CachedRow& out);
  int64_t read_length(int64_t row, CachedRow& out);  // all but the ids; returns their number
  // Lengths of all rows of a block, with one read. Waits for the block.
  std::vector<RowLength> read_lengths(int64_t block);
  // Waits for all rows; for each, whether it is kept.
  void each_kept(const std::function<void(int64_t row, bool kept)>& fn);

  int64_t num_rows() const { return num_rows_; }
  int64_t block_rows() const { return block_rows_; }
  int64_t num_made() const;   // number of rows tokenized so far
  bool is_in_memory() const;  // no file holds it
  const std::filesystem::path& folder() const { return file_.folder(); }
  int num_threads() const { return num_threads_; }
  int64_t num_rebuilt() const { return num_rebuilt_; }  // blocks that were damaged
  int64_t num_early() const { return num_early_; }      // reads that did not wait for a block

 private:
  void plan_early(const std::vector<int64_t>& early);
  bool read_early(int64_t row, CachedRow& out);
  void wait_for(int64_t block);
  bool check_block(int64_t block);
  bool start_writing();
  void work();
  struct Place {  // of a row's ids
    int64_t block;
    uint64_t begin;  // in bytes
    size_t count;
    uint64_t fields;  // the row's other fields
    uint32_t checksum;
  };
  [[noreturn]] void throw_changed() const;
  Place find(int64_t row, CachedRow& out);
  bool take_run(int64_t& begin, int64_t& end);
  void make_run(int64_t begin, int64_t end);
  bool make_block(RowScan& scan, int64_t block, std::string& bytes);
  void keep_bound(int64_t grown_bytes);

  const RowSource& rows_;
  const ExampleMaker& maker_;
  int64_t num_rows_, block_rows_, num_blocks_;
  int num_threads_;
  int64_t max_bytes_;
  TokenFile file_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::thread> threads_;        // of the writer
  int num_working_ = 0;                     // of them; under the mutex
  std::vector<std::thread> early_threads_;  // for early rows
  std::unique_ptr<EarlyRows> early_;        // may be null; fixed once started
  std::vector<int64_t> order_;              // blocks, in the order of need
  size_t next_ = 0;                         // in order_
  std::vector<uint8_t> claimed_;            // by a thread of ours
  std::vector<uint8_t> checked_;            // checksum verified
  std::vector<int64_t> urgent_;             // damaged, to be rebuilt
  std::exception_ptr error_;
  std::atomic<bool> started_{false}, stop_{false}, abandoned_{false};
  int64_t num_rebuilt_ = 0;

  std::mutex bound_mutex_;   // guards what keep_bound() uses
  int64_t num_absent_ = 0;   // blocks; set before the threads start
  int64_t grown_bytes_ = 0;  // since the caches were trimmed last
  bool has_warned_ = false;
  std::atomic<int64_t> num_early_{0};
};

}  // namespace weft
