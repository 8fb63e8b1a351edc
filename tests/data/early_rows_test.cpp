// tests/data/early_rows_test.cpp: the first rows arrive before their blocks, and are the same rows.
#include "data/early_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <random>

#include "data/batches.h"
#include "tests/batch_lists.h"
#include "tests/data/helpers.h"

namespace weft {
namespace {

constexpr int64_t kEarlyRows = 1000;

DataConfig small_config() {
  DataConfig config;
  config.seq_length = 32;
  return config;
}

std::vector<int64_t> some_rows(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<int64_t> rows;
  for (int64_t i = 0; i < kEarlyRows; ++i) rows.push_back(i);
  std::shuffle(rows.begin(), rows.end(), random);
  rows.resize(count);
  return rows;
}

TEST(EarlyRows, MatchTheMakerForEverySource) {
  const auto tokenizer = make_bytes_tokenizer();
  const DataConfig config = small_config();
  const ExampleMaker maker(config, *tokenizer, 257);
  for (const char* name : {"rows.parquet", "rows.arrow", "stream.arrow", "rows.jsonl.gz"}) {
    const auto rows = open_rows({std::string("tests/data/data/") + name}, "auto", "t", {"text"});
    const std::vector<int64_t> wanted = some_rows(90, 3);
    EarlyRows early(*rows, maker, wanted);
    EXPECT_GE(early.num_unpacked(), 90) << name;
    EXPECT_LE(early.num_unpacked(), kEarlyRows) << name;
    early.work();
    CachedRow got;
    Row row;
    Example example;
    for (const int64_t i : wanted) {
      ASSERT_TRUE(early.read(i, got)) << name;
      rows->read(i, row);
      const bool kept = maker.make(*rows, i, row, example);
      ASSERT_EQ(got.dropped, !kept) << name << " row " << i;
      ASSERT_EQ(got.num_nulls, example.num_nulls) << name;
      if (kept) {
        ASSERT_EQ(got.ids, example.ids) << name << " row " << i;
        ASSERT_EQ(got.is_label, example.is_label) << name;
      }
    }
    // Another row: the reader has passed these.
    const std::vector<int64_t> all = some_rows(kEarlyRows, 3);
    EXPECT_FALSE(early.read(all.back(), got)) << name;
    EXPECT_TRUE(early.is_passed()) << name;
    EXPECT_FALSE(early.read(wanted[0], got)) << name;
  }
}

TEST(EarlyRows, LinesAreReachedWithoutThoseBefore) {
  std::string text;
  for (int64_t i = 0; i < kEarlyRows; ++i) text += "row " + std::to_string(i) + "\n";
  const auto rows = rows_in_memory(text, RowFormat::kText, "t");
  const auto tokenizer = make_bytes_tokenizer();
  const DataConfig config = small_config();
  const ExampleMaker maker(config, *tokenizer, 257);
  EXPECT_EQ(EarlyRows(*rows, maker, some_rows(40, 1)).num_unpacked(), 40);
}

// Lines whose scans return one row, and the next only when the gate is open: a block (512 rows) is
// never built before that.
class GatedRows : public RowSource {
 public:
  explicit GatedRows(std::unique_ptr<RowSource> rows) : rows_(std::move(rows)) {}
  void open() {
    {
      const std::lock_guard lock(mutex_);
      is_open_ = true;
    }
    changed_.notify_all();
  }
  int64_t size() const override { return rows_->size(); }
  std::unique_ptr<RowScan> scan(int64_t first) const override {
    return std::make_unique<Scan>(*this, rows_->scan(first));
  }
  int64_t extent_begin(int64_t row) const override { return rows_->extent_begin(row); }
  int64_t extent_end(int64_t row) const override { return rows_->extent_end(row); }
  void read(int64_t i, Row& out) const override { rows_->read(i, out); }
  std::string where(int64_t i) const override { return rows_->where(i); }
  std::vector<FileInfo> files() const override { return rows_->files(); }
  std::vector<std::string> column_names() const override { return rows_->column_names(); }

 private:
  struct Scan : RowScan {
    Scan(const GatedRows& owner, std::unique_ptr<RowScan> scan)
        : owner_(owner), scan_(std::move(scan)) {}
    bool next(Row& out) override {
      if (num_given_++ > 0) {
        std::unique_lock lock(owner_.mutex_);
        owner_.changed_.wait(lock, [this] { return owner_.is_open_; });
      }
      return scan_->next(out);
    }
    const GatedRows& owner_;
    std::unique_ptr<RowScan> scan_;
    int num_given_ = 0;
  };

  std::unique_ptr<RowSource> rows_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool is_open_ = false;
};

class EarlyBatches : public ::testing::Test {
 protected:
  EarlyBatches() : tokenizer_(make_bytes_tokenizer()), config_(small_config()) {
    std::string text;
    for (int64_t i = 0; i < 5000; ++i) {
      text += (i % 9 == 4 ? "" : "row " + std::to_string(i)) + "\n";
    }
    folder_.write("t.txt", text);
  }
  std::unique_ptr<RowSource> rows() const {
    return open_rows({(folder_.path() / "t.txt").string()}, "auto", "data.train");
  }
  // On disk: only there rows are made early.
  StreamOptions options(const std::string& cache) const {
    StreamOptions o;
    o.global_batch = 16;
    o.cache.folder = folder_.path() / cache;
    o.cache.small_bytes = 0;
    o.cache.num_threads = 2;
    return o;
  }

  TempFolder folder_;
  std::unique_ptr<Tokenizer> tokenizer_;
  DataConfig config_;
};

TEST_F(EarlyBatches, ComeBeforeAnyBlockAndAreTheSame) {
  const auto plain = rows();
  StreamOptions in_memory = options("unused");
  in_memory.cache.small_bytes = 1 << 20;
  BatchStream wanted(config_, *plain, *tokenizer_, in_memory);
  GatedRows gated(rows());
  BatchStream stream(config_, gated, *tokenizer_, options("cache"));
  Batch a, b;
  const auto expect_same = [&](int num_batches) {
    for (int i = 0; i < num_batches; ++i) {
      ASSERT_TRUE(stream.next(a));
      ASSERT_TRUE(wanted.next(b));
      ASSERT_EQ(testing::list_of(a, "ids"), testing::list_of(b, "ids")) << i;
      ASSERT_EQ(testing::list_of(a, "targets"), testing::list_of(b, "targets")) << i;
      ASSERT_EQ(a.counted.dropped, b.counted.dropped) << i;
    }
  };
  expect_same(20);  // 320 kept rows, 360 of the 1,024 early ones
  gated.open();
  expect_same(270);  // all of the first epoch
}

TEST_F(EarlyBatches, ABadRowAmongThemIsThrown) {
  std::string text;
  for (int64_t i = 0; i < 600; ++i) text += i == 300 ? "no json\n" : "{\"text\": \"good\"}\n";
  folder_.write("t.jsonl", text);
  const auto bad =
      open_rows({(folder_.path() / "t.jsonl").string()}, "auto", "data.train", {"text"});
  BatchStream stream(config_, *bad, *tokenizer_, options("cache"));
  Batch batch;
  expect_user_error(
      [&] {
        for (int i = 0; i < 38; ++i) stream.next(batch);
        throw UserError("nobody saw it");
      },
      "t.jsonl:301");
}

}  // namespace
}  // namespace weft
