// tests/data/file_watch_test.cpp: changed files are named, and checked no more than needed.
#include "data/file_watch.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <thread>

#include "base/error.h"
#include "data/token_cache.h"
#include "tests/data/helpers.h"

namespace weft {
namespace {

TEST(FileWatch, AChangedFileIsNamed) {
  const TempFolder folder;
  folder.write("a.txt", "one\ntwo\n");
  const std::string path = (folder.path() / "a.txt").string();
  const auto rows = open_rows({path}, "auto", "data.train");
  const std::vector<FileInfo> files = rows->files();
  ASSERT_EQ(files.size(), 1u);
  check_unchanged(files);
  folder.write("a.txt", "one\ntwo\nthree\n");
  const auto expect_complaint = [&](const std::string& part) {
    try {
      check_unchanged(files);
      ADD_FAILURE() << "no error with " << part;
    } catch (const RunError& e) {
      EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
    }
  };
  expect_complaint("a.txt changed while it was in use: it had 8 bytes, now 14");
  // The same size at another time is another file too.
  folder.write("a.txt", "one\nTWO\n");
  std::filesystem::last_write_time(
      path, std::filesystem::file_time_type::clock::now() + std::chrono::seconds(5));
  expect_complaint("another modification time");
  std::filesystem::remove(path);
  expect_complaint("a.txt was removed");
}

// A system error says nothing about the file. (A link to itself: ELOOP, also for root.)
TEST(FileWatch, AnUnreadableFileIsNotMissing) {
  const TempFolder folder;
  folder.write("a.txt", "one\n");
  const std::filesystem::path path = folder.path() / "a.txt", aside = folder.path() / "aside";
  const std::vector<FileInfo> files = {file_info(path.string())};
  std::filesystem::rename(path, aside);
  std::filesystem::create_symlink(path, path);
  std::string complaint;
  try {
    check_unchanged(files, std::chrono::milliseconds(50));
  } catch (const RunError& e) {
    complaint = e.what();
  }
  EXPECT_NE(complaint.find("a.txt cannot be checked"), std::string::npos) << complaint;
  EXPECT_NE(complaint.find(std::strerror(ELOOP)), std::string::npos) << complaint;
  EXPECT_EQ(complaint.find("gone"), std::string::npos) << complaint;
  std::thread repair([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
    std::filesystem::rename(aside, path);
  });
  EXPECT_NO_THROW(check_unchanged(files));
  repair.join();
}

TEST(FileWatch, TakesAtMostOnePercentOfTheTime) {
  const TempFolder folder;
  folder.write("a.txt", "one\n");
  const std::string path = (folder.path() / "a.txt").string();
  FileWatch watch(std::vector<FileInfo>(2000, file_info(path)));
  for (int i = 0; i < 1000; ++i) watch.check();
  EXPECT_LE(watch.num_checks(), 2);  // of 2000 files: milliseconds
}

// Of many files only those whose rows were read are checked, not all for each block.
TEST(FileWatch, ABlockChecksItsOwnFiles) {
  const TempFolder folder;
  std::string text;
  for (int i = 0; i < 256; ++i) text += "row " + std::to_string(i) + "\n";
  for (int k = 10; k < 50; ++k) folder.write("d/" + std::to_string(k) + ".txt", text);
  folder.write("d/10a.txt", "");
  const auto rows = open_rows({(folder.path() / "d").string()}, "auto", "data.train");
  ASSERT_EQ(rows->files().size(), 41u);
  const auto names = [&](int64_t begin, int64_t end) {
    std::string all;
    for (const FileInfo& file : rows->files_of(begin, end))
      all += std::filesystem::path(file.path).stem().string() + " ";
    return all;
  };
  EXPECT_EQ(names(0, 1), "10 ");
  EXPECT_EQ(names(255, 512), "10 10a 11 ");  // one without rows may have got some
  EXPECT_EQ(names(256, 257), "11 ");
  EXPECT_EQ(names(9 * 256 - 1, 40 * 256).size(), 32 * 3u);
  EXPECT_EQ(names(7, 7), "");

  // A change of another file is detected when its rows are read.
  const auto tokenizer = make_bytes_tokenizer();
  DataConfig config;
  config.seq_length = 16;
  const ExampleMaker maker(config, *tokenizer, 257);
  CacheOptions options;
  options.folder = folder.path() / "cache";
  options.small_bytes = 0;
  options.num_threads = 1;
  TokenCache cache(*rows, maker, rows->size(), options);
  folder.write("d/49.txt", text + "one more\n");
  CachedRow row;
  EXPECT_NO_THROW(cache.read(0, row));
  EXPECT_THROW(cache.read(rows->size() - 1, row), RunError);
}

}  // namespace
}  // namespace weft
