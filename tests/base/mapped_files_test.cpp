// tests/base/mapped_files_test.cpp: a mapped file that another process truncates is an error, not a
// crash.
#include "base/mapped_files.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "tests/io/temporary_folder.h"

namespace weft {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kIsSanitized = true;
#else
constexpr bool kIsSanitized = false;
#endif

constexpr size_t kBytes = 1 << 20;

void write_bytes(const std::filesystem::path& path, size_t size) {
  std::ofstream(path, std::ios::binary) << std::string(size, 'x');
}

int64_t add_up(const MappedFile& file) {
  const std::string_view text = file.text();
  return std::accumulate(text.begin(), text.end(), int64_t{0});
}

std::string complaint() {
  try {
    check_mapped_files();
  } catch (const RunError& e) {
    return e.what();
  }
  return "";
}

TEST(MappedFiles, ATruncatedFileIsNamedWithBothSizes) {
  const testing::TemporaryFolder folder;
  write_bytes(folder / "whole", kBytes);
  write_bytes(folder / "cut", kBytes);
  {
    const MappedFile whole(folder / "whole"), cut(folder / "cut");
    EXPECT_EQ(add_up(cut), 'x' * int64_t{kBytes});
    EXPECT_EQ(complaint(), "");
    std::filesystem::resize_file(folder / "cut", kBytes / 2);
    EXPECT_EQ(add_up(cut), 'x' * int64_t{kBytes / 2});  // zeros, and no crash
    EXPECT_EQ(add_up(whole), 'x' * int64_t{kBytes});
    EXPECT_NE(complaint().find("cut changed while it was in use: it had 1048576 bytes, now 524288"),
              std::string::npos)
        << complaint();
  }
  EXPECT_NE(complaint(), "");  // also when the mapping is gone: what was read may be in use
  forget_lost_files();
  EXPECT_EQ(complaint(), "");
}

TEST(MappedFiles, IntactFilesRaiseNothing) {
  const testing::TemporaryFolder folder;
  write_bytes(folder / "whole", kBytes);
  write_bytes(folder / "cut", kBytes);
  const MappedFile whole(folder / "whole"), cut(folder / "cut");
  std::filesystem::resize_file(folder / "cut", 0);
  errno = ENOTTY;
  EXPECT_EQ(add_up(cut), 0);
  EXPECT_EQ(errno, ENOTTY);  // belongs to the interrupted code
  EXPECT_NO_THROW(check_mapped_file(whole.data()));
  EXPECT_THROW(check_mapped_file(cut.data() + kBytes - 1), RunError);
  std::filesystem::resize_file(folder / "cut", kBytes);
  EXPECT_NE(complaint().find("cut could not be read"), std::string::npos) << complaint();
  forget_lost_files();
}

TEST(MappedFiles, SeveralThreadsMayHitIt) {
  const testing::TemporaryFolder folder;
  write_bytes(folder / "cut", kBytes);
  const MappedFile cut(folder / "cut");
  std::filesystem::resize_file(folder / "cut", 0);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back([&] { EXPECT_EQ(add_up(cut), 0); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_NE(complaint(), "");
  forget_lost_files();
}

TEST(MappedFiles, ManyAreWatched) {
  const testing::TemporaryFolder folder;
  write_bytes(folder / "many", 100);
  write_bytes(folder / "cut", kBytes);
  std::vector<MappedFile> many;
  for (int i = 0; i < 600; ++i) many.emplace_back(folder / "many");
  const MappedFile cut(folder / "cut");
  std::filesystem::resize_file(folder / "cut", 0);
  EXPECT_EQ(add_up(cut), 0);
  EXPECT_NE(complaint().find("cut changed"), std::string::npos);
  forget_lost_files();
}

// Such as a stray pointer into shared memory: that still crashes. Sanitizers handle the signal
// themselves and exit with a report.
TEST(MappedFilesDeathTest, OtherAddressesStillCrash) {
  const testing::TemporaryFolder folder;
  write_bytes(folder / "watched", kBytes);
  write_bytes(folder / "other", kBytes);
  const auto touch = [&] {
    const MappedFile watched(folder / "watched");
    std::FILE* file = std::fopen((folder / "other").c_str(), "r");
    auto* at = static_cast<volatile char*>(
        ::mmap(nullptr, kBytes, PROT_READ, MAP_SHARED, ::fileno(file), 0));
    std::filesystem::resize_file(folder / "other", 0);
    return at[kBytes / 2];
  };
  const auto is_crash = [](int status) {
    return kIsSanitized ? status != 0 : WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS;
  };
  EXPECT_EXIT(static_cast<void>(touch()), is_crash, "");
}

}  // namespace
}  // namespace weft
