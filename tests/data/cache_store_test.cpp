// tests/data/cache_store_test.cpp: caches are listed, limited and evicted, never an open one.
#include "data/cache_store.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <functional>

#include "base/error.h"
#include "data/token_cache.h"
#include "tests/data/helpers.h"

namespace {
std::function<void()> before_flock;  // by the next call, once armed
std::atomic<bool> is_flock_armed{false};
}  // namespace

// Replaces the C library's.
extern "C" int flock(int fd, int operation) noexcept {
  if (is_flock_armed.exchange(false)) before_flock();
  return static_cast<int>(::syscall(SYS_flock, fd, operation));
}

namespace weft {
namespace {

namespace fs = std::filesystem;

class CacheStore : public ::testing::Test {
 protected:
  CacheStore() : tokenizer_(make_bytes_tokenizer()) { config_.seq_length = 32; }

  struct Opened {
    std::unique_ptr<ExampleMaker> maker;
    std::unique_ptr<RowSource> rows;
    std::unique_ptr<TokenCache> cache;
    void fill() const {
      cache->each_kept([](int64_t, bool) {});
    }
  };
  // A cache of some 60 KB of rows; `max_bytes` of all of them.
  Opened open(const std::string& name, int64_t max_bytes = 1 << 30) {
    std::string text;
    for (int i = 0; i < 3000; ++i) text += name + " row " + std::to_string(i) + "\n";
    if (!fs::exists(folder_.path() / name)) folder_.write(name, text);
    CacheOptions options;
    options.folder = root();
    options.small_bytes = 0;
    options.num_threads = 1;
    options.max_bytes = max_bytes;
    Opened opened;
    opened.maker = std::make_unique<ExampleMaker>(config_, *tokenizer_, 257);
    opened.rows = open_rows({(folder_.path() / name).string()}, "auto", "data.train");
    opened.cache =
        std::make_unique<TokenCache>(*opened.rows, *opened.maker, opened.rows->size(), options);
    return opened;
  }
  void make(const std::string& name, int64_t max_bytes = 1 << 30) { open(name, max_bytes).fill(); }
  fs::path root() const { return folder_.path() / "cache"; }
  // The files of the existing caches, most recently used first.
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const CacheEntry& c : list_caches(root()))
      found.push_back(fs::path(c.files).filename().string());
    return found;
  }
  // As if last used that long ago.
  void age(const std::string& name, int64_t seconds) const {
    for (const CacheEntry& c : list_caches(root())) {
      if (fs::path(c.files).filename() != name) continue;
      const timespec then{::time(nullptr) - seconds, 0};
      const timespec times[2] = {then, then};
      ASSERT_EQ(::utimensat(AT_FDCWD, (c.folder / kCacheUsed).c_str(), times, 0), 0);
    }
  }
  using Names = std::vector<std::string>;

  TempFolder folder_;
  std::unique_ptr<Tokenizer> tokenizer_;
  DataConfig config_;
};

TEST_F(CacheStore, ListsCaches) {
  EXPECT_TRUE(list_caches(root()).empty());
  make("a.txt");
  make("b.txt");
  age("b.txt", 100);
  const std::vector<CacheEntry> caches = list_caches(root());
  ASSERT_EQ(caches.size(), 2u);
  EXPECT_EQ(fs::path(caches[0].files).filename(), "a.txt");
  EXPECT_EQ(caches[0].num_rows, 3000);
  EXPECT_FALSE(caches[0].is_open);
  EXPECT_GE(caches[0].bytes, static_cast<int64_t>(fs::file_size(caches[0].folder / "tokens")));
  EXPECT_NEAR(static_cast<double>(caches[0].last_used_ns - caches[1].last_used_ns), 100e9, 5e9);
  const Opened again = open("b.txt");  // used now, and open
  EXPECT_EQ(names(), (Names{"b.txt", "a.txt"}));
  EXPECT_TRUE(list_caches(root())[0].is_open);
}

TEST_F(CacheStore, TheLeastRecentlyUsedIsEvicted) {
  make("a.txt");
  make("b.txt");
  make("c.txt");
  age("b.txt", 300);
  age("a.txt", 200);
  age("c.txt", 100);
  const int64_t one = list_caches(root())[0].bytes;
  make("d.txt", 4 * one);  // all fit
  EXPECT_EQ(names(), (Names{"d.txt", "c.txt", "a.txt", "b.txt"}));
  make("e.txt", 2 * one + one / 2);
  EXPECT_EQ(names(), (Names{"e.txt", "d.txt"}));  // by its final size, not by its text
  // Opening an existing one evicts nothing.
  make("e.txt", 1);
  EXPECT_EQ(names().size(), 2u);
}

// The limit is kept while a cache grows, and a single one beyond it causes one warning.
TEST_F(CacheStore, OneThatGrowsEvictsOthers) {
  make("a.txt");
  const int64_t one = list_caches(root())[0].bytes;
  const auto warnings = [&](const std::string& name, int64_t max_bytes) {
    ::testing::internal::CaptureStderr();
    make(name, max_bytes);
    const std::string text = ::testing::internal::GetCapturedStderr();
    int count = 0;
    for (size_t at = 0; (at = text.find("over the limit of", at)) != std::string::npos; ++at)
      ++count;
    return count;
  };
  EXPECT_EQ(warnings("b.txt", one + one / 2), 0);
  EXPECT_EQ(names(), Names{"b.txt"});
  EXPECT_EQ(warnings("c.txt", one / 2), 1);
  EXPECT_EQ(names(), Names{"c.txt"});
}

// Two removers and one builder: between one remover's open and its lock the other removed the
// cache, and the builder recreated it. The lock is then on a deleted file.
TEST_F(CacheStore, ALockOnARemovedFileIsIgnored) {
  make("a.txt");
  const fs::path folder = list_caches(root())[0].folder;
  Opened maker;
  before_flock = [&] {
    ASSERT_EQ(remove_cache(folder), Removal::kDone);
    maker = open("a.txt");
    maker.fill();
  };
  is_flock_armed = true;
  EXPECT_EQ(remove_cache(folder), Removal::kInUse);
  EXPECT_EQ(names(), Names{"a.txt"});
  EXPECT_EQ(remove_cache(folder), Removal::kInUse);  // its builder has it open
  before_flock = nullptr;
}

TEST_F(CacheStore, OpenCachesAreNeverRemoved) {
  const Opened reader = open("a.txt");
  reader.fill();
  age("a.txt", 1000);
  make("b.txt");
  make("c.txt", 1);
  EXPECT_EQ(names(), (Names{"c.txt", "a.txt"}));
  for (const CacheEntry& c : list_caches(root())) {
    const bool is_open = fs::path(c.files).filename() == "a.txt";
    EXPECT_EQ(remove_cache(c.folder), is_open ? Removal::kInUse : Removal::kDone);
  }
  CachedRow row;
  reader.cache->read(2999, row);
  EXPECT_FALSE(row.ids.empty());
  EXPECT_EQ(names(), Names{"a.txt"});
}

TEST_F(CacheStore, OnlyOurFilesAreRemoved) {
  make("a.txt");
  const fs::path ours = list_caches(root())[0].folder;
  folder_.write("cache/notes.txt", "mine");
  fs::create_directories(root() / "0123456789abcdef");  // not a cache: it has none of its files
  folder_.write("cache/0123456789abcdef/tokens", "mine");
  folder_.write("cache/" + ours.filename().string() + "/notes.txt", "mine");
  fs::create_directory_symlink(ours, root() / "fedcba9876543210");
  ASSERT_EQ(list_caches(root()).size(), 1u);
  EXPECT_EQ(remove_cache(ours), Removal::kDone);
  EXPECT_TRUE(fs::exists(ours / "notes.txt"));
  EXPECT_FALSE(fs::exists(ours / "tokens"));
  trim_caches(root(), "", 1 << 20, 1);
  EXPECT_TRUE(fs::exists(root() / "notes.txt"));
  EXPECT_TRUE(fs::exists(root() / "0123456789abcdef/tokens"));
}

// A process that opened it before the removal continues, and the next one rebuilds it.
TEST_F(CacheStore, ARemovedCacheIsRebuilt) {
  make("a.txt");
  const fs::path folder = list_caches(root())[0].folder;
  ASSERT_EQ(remove_cache(folder), Removal::kDone);
  EXPECT_FALSE(fs::exists(folder));
  EXPECT_EQ(remove_cache(folder), Removal::kDone);  // somebody else did it
  make("a.txt");
  EXPECT_EQ(names(), Names{"a.txt"});
}

TEST_F(CacheStore, TheLimitIsASize) {
  const char* const before = std::getenv("WEFT_CACHE_MAX");
  const std::string kept = before ? before : "";
  ::setenv("WEFT_CACHE_MAX", "20GB", 1);
  EXPECT_EQ(max_cache_bytes(), 20'000'000'000);
  ::setenv("WEFT_CACHE_MAX", "", 1);
  EXPECT_EQ(max_cache_bytes(), 50'000'000'000);
  ::setenv("WEFT_CACHE_MAX", "much", 1);
  EXPECT_THROW(max_cache_bytes(), UserError);
  ::setenv("WEFT_CACHE_MAX", kept.c_str(), 1);
}

}  // namespace
}  // namespace weft
