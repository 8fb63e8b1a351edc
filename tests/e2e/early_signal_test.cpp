// tests/e2e/early_signal_test.cpp: a signal while waiting for rows ends the run at once.
//
// The wait is endless: the test holds the lock of the token cache, as another tokenizing process
// would.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "base/stop.h"
#include "tests/e2e/tiny_run.h"

namespace weft::testing {
namespace {

class Lock {
 public:
  explicit Lock(const std::filesystem::path& file) : fd_(::open(file.c_str(), O_RDWR)) {
    EXPECT_EQ(::flock(fd_, LOCK_EX | LOCK_NB), 0) << file;
  }
  ~Lock() { ::close(fd_); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  int fd_;
};

std::filesystem::path find_lock(const std::filesystem::path& cache) {
  for (const auto& entry : std::filesystem::recursive_directory_iterator(cache)) {
    if (entry.path().filename() == "lock") return entry.path();
  }
  ADD_FAILURE() << "no token cache in " << cache;
  return {};
}

TEST(EarlySignal, EndsARunThatWaitsForItsRows) {
  const TinyRun run;
  std::string rows;  // more than is kept in memory
  for (int i = 0; i < 9000; ++i) rows += std::string(1000, static_cast<char>('a' + i % 26)) + "\n";
  run.write("train.txt", rows);
  const std::filesystem::path cache = run / "cache";
  const StartOptions options{.env = {{"WEFT_CACHE", cache.string()}}};
  ASSERT_EQ(
      run_to_end(run.words("train", {"name=first", "train.steps=1", "data.layout=pack"}), options)
          .exit_code,
      0);
  const std::filesystem::path lock = find_lock(cache);
  // Packing needs the lengths of a whole window, which nobody writes here.
  std::filesystem::resize_file(lock.parent_path() / "index", 0);
  const Lock held(lock);
  for (const char* ranks : {"parallel.dp=1", "parallel.dp=2"}) {
    for (const int signal : {SIGTERM, SIGINT, SIGHUP}) {
      Program program(run.words("train", {"name=second", ranks, "data.layout=pack"}), options);
      std::this_thread::sleep_for(std::chrono::seconds(1));
      ASSERT_TRUE(program.is_running());
      program.send(signal);
      const auto start = std::chrono::steady_clock::now();
      const Ended ended = program.wait(60);
      EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
      EXPECT_EQ(ended.exit_code, 128 + signal) << ranks << ended.signal << ended.err;
      expect_parts(ended.err, {std::string(signal_name(signal)) +
                               ": stopped before the first step, with nothing to save\n"});
      EXPECT_FALSE(std::filesystem::exists(run.dir("second")));
    }
  }
}

}  // namespace
}  // namespace weft::testing
