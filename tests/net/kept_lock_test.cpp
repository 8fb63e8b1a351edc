// tests/net/kept_lock_test.cpp: a lock that goes from one process to its successor.
#include "net/kept_lock.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

namespace weft {
namespace {

class KeptLock : public ::testing::Test {
 protected:
  KeptLock() { std::filesystem::create_directories(folder_); }
  ~KeptLock() override { std::filesystem::remove_all(folder_); }
  const std::filesystem::path folder_ =
      std::filesystem::path(::testing::TempDir()) / ("kept-lock-" + std::to_string(::getpid()));
};

bool is_free(const std::filesystem::path& file) {
  const int fd = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  const bool locked = ::flock(fd, LOCK_EX | LOCK_NB) == 0;
  ::close(fd);
  return locked;
}

// In a process of its own, as a rank does it; then it is killed. Whether body returned true.
template <typename Body>
bool in_rank(const LockKeeper& keeper, const Body& body) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::setenv(kLockFdVariable, std::to_string(keeper.fd()).c_str(), 1);
    ::_exit(body() ? 0 : 1);
  }
  int status = -1;
  ::waitpid(pid, &status, 0);
  return status == 0;
}

bool lock_and_keep(const std::filesystem::path& file) {
  const int fd = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0) return false;
  keep_lock(fd);
  return true;
}

TEST_F(KeptLock, PassesFromProcessToProcess) {
  const std::filesystem::path file = folder_ / "lock";
  {
    LockKeeper keeper;
    ASSERT_TRUE(in_rank(keeper, [&] { return lock_and_keep(file); }));
    EXPECT_FALSE(is_free(file));
    for (int successor = 0; successor < 3; ++successor) {
      keeper.hand_on();
      EXPECT_TRUE(in_rank(keeper, [&] {
        const int fd = take_kept_lock(file);
        keep_lock(fd);
        return fd >= 0 && ::flock(fd, LOCK_EX | LOCK_NB) == 0;
      }));
      EXPECT_FALSE(is_free(file));
    }
    // One that dies before it has taken or sent anything on.
    keeper.hand_on();
    EXPECT_TRUE(in_rank(keeper, [&] { return true; }));
    keeper.hand_on();
    EXPECT_TRUE(in_rank(keeper, [&] { return take_kept_lock(file) >= 0; }));
    keeper.hand_on();
    EXPECT_TRUE(in_rank(keeper, [&] { return take_kept_lock(file) >= 0; }));
    EXPECT_FALSE(is_free(file));
  }
  EXPECT_TRUE(is_free(file));
}

// As the first node's agent has it of its supervisor: every rank gets it, also the first one.
TEST_F(KeptLock, IsInheritedByAKeeper) {
  const std::filesystem::path file = folder_ / "lock";
  const int held = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_EQ(::flock(held, LOCK_EX | LOCK_NB), 0);
  ::setenv(kHeldLockVariable, std::to_string(held).c_str(), 1);
  for (int generation = 0; generation < 2; ++generation) {
    LockKeeper keeper;
    keeper.hand_on();
    EXPECT_TRUE(in_rank(keeper, [&] { return take_kept_lock(file) >= 0; }));
    EXPECT_FALSE(is_free(file));
  }
  EXPECT_FALSE(is_free(file));
  ::close(held);
  LockKeeper late;  // a number that is no descriptor any more
  ::unsetenv(kHeldLockVariable);
  late.hand_on();
  EXPECT_TRUE(in_rank(late, [&] { return take_kept_lock(file) < 0; }));
  EXPECT_TRUE(is_free(file));
}

TEST_F(KeptLock, OfThisFileOnly) {
  LockKeeper keeper;
  EXPECT_TRUE(in_rank(keeper, [&] { return take_kept_lock(folder_ / "a") < 0; }));
  ASSERT_TRUE(in_rank(keeper, [&] { return lock_and_keep(folder_ / "a"); }));
  keeper.hand_on();
  EXPECT_TRUE(in_rank(keeper, [&] {
    return is_free(folder_ / "b") && take_kept_lock(folder_ / "b") < 0 &&
           take_kept_lock(folder_ / "a") >= 0;
  }));
}

TEST_F(KeptLock, TwiceInOneProcess) {
  LockKeeper keeper;
  EXPECT_TRUE(in_rank(
      keeper, [&] { return lock_and_keep(folder_ / "a") && take_kept_lock(folder_ / "a") >= 0; }));
}

TEST_F(KeptLock, WithoutASupervisorNothingIsKept) {
  ASSERT_TRUE(lock_and_keep(folder_ / "a"));
  EXPECT_LT(take_kept_lock(folder_ / "a"), 0);
}

}  // namespace
}  // namespace weft
