// tests/data/token_cache_test.cpp: built once, shared, continued, and never trusted when damaged.
#include "data/token_cache.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <functional>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mapped_files.h"
#include "data/batches.h"
#include "data/cache_store.h"
#include "data/pack_counts.h"
#include "tests/data/helpers.h"

namespace {
std::atomic<bool> is_disk_full{false};
}  // namespace

// Replaces the library's, with the same meaning: a full disk cannot be set up everywhere.
extern "C" int posix_fallocate(int fd, off_t offset, off_t size) {
  if (is_disk_full) return ENOSPC;
  return ::syscall(SYS_fallocate, fd, 0, offset, size) == 0 ? 0 : errno;
}

namespace weft {
namespace {

constexpr int64_t kCachedRows = 3000;

std::string complaint_of(const std::function<void()>& fn) {
  try {
    fn();
  } catch (const RunError& e) {
    return e.what();
  }
  return "";
}

class CacheTest : public ::testing::Test {
 protected:
  CacheTest() : tokenizer_(make_bytes_tokenizer()) {
    std::string text;
    for (int64_t i = 0; i < kCachedRows; ++i)
      text += "row " + std::to_string(i) + (i % 10 == 0 ? "\n\n" : "\n");
    folder_.write("t.txt", text);
    config_.seq_length = 32;
    options_.folder = folder_.path() / "cache";
    options_.small_bytes = 0;
    options_.num_threads = 2;
    maker_ = std::make_unique<ExampleMaker>(config_, *tokenizer_, 257);
    rows_ = open();
  }

  std::unique_ptr<RowSource> open() const {
    return open_rows({(folder_.path() / "t.txt").string()}, "auto", "data.train");
  }
  std::unique_ptr<TokenCache> make() const {
    return std::make_unique<TokenCache>(*rows_, *maker_, rows_->size(), options_);
  }
  void expect_good(TokenCache& cache) const {
    CachedRow row;
    Row raw;
    Example example;
    for (int64_t i = 0; i < rows_->size(); i += 7) {
      rows_->read(i, raw);
      const bool kept = maker_->make(*rows_, i, raw, example);
      cache.read(i, row);
      ASSERT_EQ(row.dropped, !kept);
      if (!kept) continue;
      ASSERT_EQ(row.ids, example.ids) << i;
      ASSERT_EQ(row.is_label, example.is_label) << i;
    }
  }
  std::filesystem::path only_folder() const {
    const std::filesystem::directory_iterator entry(options_.folder);
    EXPECT_EQ(std::distance(begin(entry), end(entry)), 1);
    return std::filesystem::directory_iterator(options_.folder)->path();
  }

  TempFolder folder_;
  std::unique_ptr<Tokenizer> tokenizer_;
  DataConfig config_;
  CacheOptions options_;
  std::unique_ptr<ExampleMaker> maker_;
  std::unique_ptr<RowSource> rows_;
};

TEST_F(CacheTest, StoresTheMakersExamples) {
  const auto cache = make();
  EXPECT_FALSE(cache->is_in_memory());
  expect_good(*cache);
  int64_t kept = 0;
  cache->each_kept([&](int64_t, bool is_kept) { kept += is_kept; });
  EXPECT_EQ(kept, kCachedRows);
  EXPECT_EQ(cache->num_made(), rows_->size());
}

TEST_F(CacheTest, SmallFilesStayInMemory) {
  options_.small_bytes = 1 << 20;
  const auto cache = make();
  EXPECT_TRUE(cache->is_in_memory());
  expect_good(*cache);
  EXPECT_FALSE(std::filesystem::exists(options_.folder));
}

TEST_F(CacheTest, IsReusedNotRebuilt) {
  make()->each_kept([](int64_t, bool) {});
  const auto tokens = only_folder() / "tokens";
  const auto size = std::filesystem::file_size(tokens);
  const auto time = std::filesystem::last_write_time(tokens);
  const auto cache = make();
  cache->start({});
  EXPECT_EQ(cache->num_made(), rows_->size());
  expect_good(*cache);
  EXPECT_EQ(std::filesystem::file_size(tokens), size);
  EXPECT_EQ(std::filesystem::last_write_time(tokens), time);
}

TEST_F(CacheTest, AnotherTemplateTokenizerOrFileIsAnotherCache) {
  make()->each_kept([](int64_t, bool) {});
  config_.seq_length = 16;
  maker_ = std::make_unique<ExampleMaker>(config_, *tokenizer_, 257);
  make()->each_kept([](int64_t, bool) {});
  folder_.write("t.txt", "other\nrows\n");
  rows_ = open();
  make()->each_kept([](int64_t, bool) {});
  const std::filesystem::directory_iterator entry(options_.folder);
  EXPECT_EQ(std::distance(begin(entry), end(entry)), 3);
}

// Another file of the same name, size and time: renamed into place, or rewritten with its time
// restored.
TEST_F(CacheTest, AFileOfTheSameSizeAndTimeIsAnotherCache) {
  namespace fs = std::filesystem;
  const fs::path path = folder_.path() / "t.txt", other = folder_.path() / "other.txt";
  make()->each_kept([](int64_t, bool) {});
  StreamOptions stream;
  stream.cache = options_;
  Batch batch;
  BatchStream first(config_, *rows_, *tokenizer_, stream);
  ASSERT_TRUE(first.next(batch));
  const StreamState state = first.state();
  const auto time = fs::last_write_time(path);
  std::string text = read_file(path);
  std::replace(text.begin(), text.end(), 'r', 'R');
  folder_.write("other.txt", text);
  fs::last_write_time(other, time);
  fs::rename(other, path);
  rows_ = open();
  expect_good(*make());
  BatchStream resumed(config_, *rows_, *tokenizer_, stream);
  expect_user_error([&] { resumed.restore(state); }, "in size, time or content");
  std::replace(text.begin(), text.end(), 'R', 'S');
  folder_.write("t.txt", text);
  fs::last_write_time(path, time);
  rows_ = open();
  expect_good(*make());
}

// A block of long rows has fewer rows, so that a thread holds at most 2 MiB of text.
TEST_F(CacheTest, BlocksOfLongRowsAreShort) {
  EXPECT_EQ(make()->block_rows(), 512);
  std::string text;
  for (int i = 0; i < 30; ++i) text += std::string(300'000, static_cast<char>('a' + i % 26)) + "\n";
  folder_.write("t.txt", text);
  config_.layout = "pack";
  config_.seq_length = 1 << 19;
  maker_ = std::make_unique<ExampleMaker>(config_, *tokenizer_, 257);
  rows_ = open();
  const auto cache = make();
  EXPECT_EQ(cache->block_rows(), 4);
  expect_good(*cache);
  int64_t kept = 0;
  cache->each_kept([&](int64_t row, bool is_kept) { kept += is_kept && row == kept; });
  EXPECT_EQ(kept, 30);
}

// The sequences that `pack` makes of an epoch are counted once and stored next to the tokens.
TEST_F(CacheTest, CountsOfPackedEpochsAreKept) {
  config_.layout = "pack";
  config_.eval_fraction = 0.1;
  StreamOptions options;
  options.cache = options_;
  options.part = Part::kTrain;
  const auto measure = [&](int64_t epoch) {
    return BatchStream(config_, *rows_, *tokenizer_, options).measure_pack(epoch);
  };
  const PackSize first = measure(1), second = measure(2);
  Batch batch;
  BatchStream stream(config_, *rows_, *tokenizer_, options);
  int64_t steps = 0;
  while (stream.next(batch) && batch.epoch == 1) ++steps;
  EXPECT_EQ(first.sequences / options.global_batch, steps);
  EXPECT_EQ(first.tokens, second.tokens);
  EXPECT_EQ(first.positions, first.sequences * config_.seq_length);

  const auto folder = only_folder();
  const std::string text = read_file(folder / kCacheCounts);
  const Json counts = parse_json(text.substr(text.find('\n')), "counts");
  ASSERT_EQ(counts.as_object().size(), 2u);
  for (const auto& [key, size] : counts.as_object()) {
    PackSize other{1, 2, 3, 4};
    EXPECT_EQ(find_pack_size(folder, key)->rows, size.as_array()[0].as_int());
    keep_pack_size(folder, key, other);
  }
  EXPECT_EQ(measure(2).sequences, 2) << "not counted again";
  options.seed = 43;
  EXPECT_GT(measure(2).sequences, 2) << "another order";
  options.seed = 42;
  std::ofstream(folder / kCacheCounts) << text << "x";
  EXPECT_EQ(measure(2).sequences, second.sequences) << "damaged: counted again";
  EXPECT_EQ(measure(1).sequences, first.sequences);
}

TEST_F(CacheTest, DamagedBlocksAreRebuilt) {
  make()->each_kept([](int64_t, bool) {});
  const auto tokens = (only_folder() / "tokens").string();
  std::string bytes = read_file(tokens);
  bytes[bytes.size() / 2] = static_cast<char>(~bytes[bytes.size() / 2]);
  {
    std::ofstream out(tokens, std::ios::binary | std::ios::in);
    out << bytes;
  }
  const auto cache = make();
  expect_good(*cache);
  EXPECT_EQ(cache->num_rebuilt(), 1);
}

TEST_F(CacheTest, TruncatedFilesAreRebuilt) {
  make()->each_kept([](int64_t, bool) {});
  const std::filesystem::path folder = only_folder();
  std::filesystem::resize_file(folder / "tokens",
                               std::filesystem::file_size(folder / "tokens") / 2);
  expect_good(*make());
  std::filesystem::resize_file(folder / "index", 10);
  expect_good(*make());
  folder_.write("cache/" + folder.filename().string() + "/index",
                std::string(std::filesystem::file_size(folder / "index"), 'x'));
  expect_good(*make());
}

TEST_F(CacheTest, ABadRowIsThrownAtTheReader) {
  folder_.write("t.jsonl", "{\"text\":\"good\"}\nbad\n");
  rows_ = open_rows({(folder_.path() / "t.jsonl").string()}, "auto", "data.train");
  const auto cache = make();
  CachedRow row;
  expect_user_error([&] { cache->read(0, row); }, "t.jsonl:2");
}

TEST_F(CacheTest, AFileThatChangesMeanwhileIsRejected) {
  folder_.write("t.txt", "now\nanother\nfile\n" + std::string(100000, 'x'));
  const auto cache = make();
  const std::string complaint = complaint_of([&] { cache->each_kept([](int64_t, bool) {}); });
  EXPECT_NE(complaint.find("t.txt changed while it was in use"), std::string::npos) << complaint;
}

// Four processes at once, and the one that writes is killed.
TEST_F(CacheTest, ProcessesShareOneCache) {
  std::vector<pid_t> children;
  for (int p = 0; p < 4; ++p) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      int64_t kept = 0;
      try {
        const auto cache = make();
        if (p == 0) {
          CachedRow row;
          cache->read(0, row);
          ::raise(SIGKILL);
        }
        cache->each_kept([&](int64_t, bool is_kept) { kept += is_kept; });
      } catch (...) {
        ::_exit(9);
      }
      ::_exit(kept == kCachedRows ? 0 : 1);
    }
    children.push_back(pid);
  }
  for (size_t p = 0; p < children.size(); ++p) {
    int status = 0;
    ASSERT_EQ(::waitpid(children[p], &status, 0), children[p]);
    if (p == 0) {
      EXPECT_TRUE(WIFSIGNALED(status));
    } else {
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
    }
  }
  expect_good(*make());
}

TEST_F(CacheTest, ResumeAndEpochsSeeChangedFiles) {
  StreamOptions options;
  options.global_batch = 8;
  StreamState state;
  Batch batch;
  {
    BatchStream stream(config_, *rows_, *tokenizer_, options);
    ASSERT_TRUE(stream.next(batch));
    state = stream.state();
    EXPECT_NE(state.files, 0u);
  }
  BatchStream same(config_, *rows_, *tokenizer_, options);
  same.restore(state);
  ASSERT_TRUE(same.next(batch));
  folder_.write("t.txt", read_file(folder_.path() / "t.txt") + "one row more\n");
  // Between two epochs.
  const std::string complaint = complaint_of([&] {
    for (int64_t i = 0; i < kCachedRows; ++i) same.next(batch);
  });
  EXPECT_NE(complaint.find("t.txt changed"), std::string::npos) << complaint;
  // At resume.
  const auto changed = open();
  BatchStream resumed(config_, *changed, *tokenizer_, options);
  expect_user_error([&] { resumed.restore(state); }, "differ from those of the checkpoint");
}

// Zeros in place of rows are never stored, whichever part of the file they are in.
TEST_F(CacheTest, ATruncatedFileYieldsNoRows) {
  std::string text(size_t{2} << 20, 'x');
  text[1 << 20] = '\n';
  folder_.write("t.txt", text);
  rows_ = open();
  std::filesystem::resize_file(folder_.path() / "t.txt", (1 << 20) + 100);
  auto cache = make();
  CachedRow row;
  EXPECT_NE(complaint_of([&] { cache->read(1, row); }).find("t.txt changed while it was in use"),
            std::string::npos);
  EXPECT_EQ(cache->num_made(), 0);
  cache.reset();
  rows_.reset();  // its mapping is still a lost one
  forget_lost_files();
}

TEST_F(CacheTest, ATruncatedIndexIsNamed) {
  auto cache = make();
  expect_good(*cache);
  std::filesystem::resize_file(only_folder() / "index", 0);
  CachedRow row;
  const std::string complaint = complaint_of([&] { cache->read(1, row); });
  EXPECT_NE(complaint.find("index changed while it was in use"), std::string::npos) << complaint;
  cache.reset();
  forget_lost_files();
}

// The index is allocated in full at the start: later a full disk would be a SIGBUS.
TEST_F(CacheTest, AFullDiskIsNamed) {
  is_disk_full = true;
  const std::string complaint =
      complaint_of([&] { TokenFile(folder_.path() / "cache", 1, 100).try_lock(); });
  is_disk_full = false;
  EXPECT_NE(complaint.find(std::strerror(ENOSPC)), std::string::npos) << complaint;
}

TEST_F(CacheTest, TokensThatChangeAreNamed) {
  const auto cache = make();
  expect_good(*cache);
  const std::filesystem::path tokens = only_folder() / "tokens";
  const auto size = std::filesystem::file_size(tokens);
  const auto complaint = [&] {
    CachedRow row;
    return complaint_of([&] { cache->read(1, row); });
  };
  EXPECT_EQ(complaint(), "");
  std::filesystem::resize_file(tokens, 0);
  EXPECT_NE(complaint().find("tokens changed while it was in use"), std::string::npos);
  // What a continuing writer turns it into: zeros, which are tokens too.
  std::filesystem::resize_file(tokens, size);
  EXPECT_NE(complaint().find("tokens changed while it was in use"), std::string::npos);
}

}  // namespace
}  // namespace weft
