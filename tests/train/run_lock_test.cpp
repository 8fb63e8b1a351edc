// tests/train/run_lock_test.cpp: who holds a run directory, on one machine and on several.
#include "train/run_lock.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "tests/io/temporary_folder.h"

namespace weft {
namespace {

using namespace std::chrono_literals;
using testing::error_of;
using testing::TemporaryFolder;

const SharedStorage kShared{true, {20ms, 2000ms, 5ms}};

TEST(RunLock, TheRefusalNamesHostAndPid) {
  const TemporaryFolder folder;
  const RunLock first(folder.path());
  const std::string error = error_of<UserError>([&] { const RunLock second(folder.path()); });
  EXPECT_NE(error.find(fmt::format("process {} on {}", ::getpid(), host_name())), std::string::npos)
      << error;
  EXPECT_FALSE(std::filesystem::exists(folder / ".lease"));  // not on a disk of this machine
}

// Two machines whose flock does not reach each other: here the file of flock is replaced.
TEST(RunLock, OnSharedStorageTheLeaseRefusesWhereFlockDoesNot) {
  const TemporaryFolder folder;
  const RunLock first(folder.path(), kShared);
  std::filesystem::remove(folder / ".lock");
  const std::string error =
      error_of<UserError>([&] { const RunLock second(folder.path(), kShared); });
  EXPECT_NE(error.find(fmt::format("process {} on {}", ::getpid(), host_name())), std::string::npos)
      << error;
}

TEST(RunLock, OnSharedStorageAReleasedOneIsFree) {
  const TemporaryFolder folder;
  { RunLock(folder.path(), kShared).check(); }
  EXPECT_FALSE(std::filesystem::exists(folder / ".lease"));
  RunLock(folder.path(), kShared).check();
}

// Of a run on several nodes: the supervisor waits for them, then rank 0 gets its lock.
TEST(RunLock, ALeaseThatIsReleasedAloneLeavesTheLock) {
  const TemporaryFolder folder;
  RunLock lock(folder.path(), kShared);
  EXPECT_TRUE(std::filesystem::exists(folder / ".lease"));
  lock.release_lease();
  EXPECT_FALSE(std::filesystem::exists(folder / ".lease"));
  const std::string error =
      error_of<UserError>([&] { const RunLock second(folder.path(), kShared); });
  EXPECT_NE(error.find("another process is training in "), std::string::npos) << error;
}

TEST(RunLock, OneThatWasTakenOverByAnotherMachineIsNoticed) {
  const TemporaryFolder folder;
  RunLock lock(folder.path(), kShared);
  write_file_atomic(folder / ".lease",
                    "{\"host\":\"far\",\"pid\":7,\"machine\":\"m\",\"token\":\"t\",\"beat\":0,"
                    "\"lease_s\":25,\"held\":true}");
  for (int i = 0; i < 500; ++i) {
    try {
      lock.check();
    } catch (const RunError& e) {
      EXPECT_NE(std::string(e.what()).find("process 7 on far"), std::string::npos) << e.what();
      return;
    }
    std::this_thread::sleep_for(10ms);
  }
  FAIL() << "not noticed";
}

}  // namespace
}  // namespace weft
