// tests/base/available_memory_test.cpp: made-up /proc and /sys trees of machines and containers.
#include "base/available_memory.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

namespace weft {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMib = 1 << 20;

class AvailableMemory : public ::testing::Test {
 protected:
  ~AvailableMemory() override { fs::remove_all(root_); }

  void write(const std::string& path, const std::string& text) const {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  void write_mib(const std::string& path, int64_t mib) const {
    write(path, std::to_string(mib * kMib) + "\n");
  }
  void write_machine(int64_t available_mib) const {
    write("proc/meminfo", "MemTotal:   99999999 kB\nMemFree:   1 kB\nMemAvailable:  " +
                              std::to_string(available_mib * 1024) + " kB\n");
  }
  int64_t available() const { return available_memory(root_).bytes; }
  int64_t available_mib() const { return available() / kMib; }

  fs::path root_ = fs::temp_directory_path() / ("weft-memory-" + std::to_string(::getpid()));
};

constexpr const char* kMountV2 =
    "22 1 8:1 / / rw - ext4 /dev/sda rw\n"
    "30 22 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";

TEST_F(AvailableMemory, WithoutCgroupsTheMachineLimits) {
  EXPECT_FALSE(available_memory(root_).is_bounded());
  write_machine(700);
  EXPECT_EQ(available(), 700 * kMib);
  EXPECT_NE(available_memory(root_).source.find("MemAvailable"), std::string::npos);
}

TEST_F(AvailableMemory, VersionTwoUsesTheTightestGroup) {
  write_machine(10000);
  write("proc/self/mountinfo", kMountV2);
  write("proc/self/cgroup", "0::/job/step\n");
  write("sys/fs/cgroup/job/step/memory.max", "max\n");
  EXPECT_EQ(available_mib(), 10000);
  // The parent group: limit 2000, 700 used, 200 of these by cached files.
  write_mib("sys/fs/cgroup/job/memory.max", 2000);
  write_mib("sys/fs/cgroup/job/memory.current", 700);
  write("sys/fs/cgroup/job/memory.stat", "anon 1\ninactive_file " + std::to_string(150 * kMib) +
                                             "\nactive_file " + std::to_string(50 * kMib) +
                                             "\nshmem 77\n");
  EXPECT_EQ(available_mib(), 1500);
  EXPECT_NE(available_memory(root_).source.find("job/memory.max"), std::string::npos);
  // Its own is tighter; then the machine is.
  write_mib("sys/fs/cgroup/job/step/memory.max", 300);
  write_mib("sys/fs/cgroup/job/step/memory.current", 100);
  EXPECT_EQ(available_mib(), 200);
  write_machine(100);
  EXPECT_EQ(available_mib(), 100);
}

TEST_F(AvailableMemory, CachesThatTheKernelDropsAreFree) {
  write("proc/self/mountinfo", kMountV2);
  write("proc/self/cgroup", "0::/job\n");
  write_mib("sys/fs/cgroup/job/memory.max", 1000);
  write_mib("sys/fs/cgroup/job/memory.current", 700);
  write("sys/fs/cgroup/job/memory.stat",
        "slab 999\nslab_reclaimable " + std::to_string(300 * kMib) + "\n");
  EXPECT_EQ(available_mib(), 600);
}

// Such as an unreadable /sys/fs/cgroup. (A symlink loop, because root may read everything.)
TEST_F(AvailableMemory, AnUnreadableGroupImposesNoLimit) {
  write_machine(700);
  write("proc/self/mountinfo", kMountV2);
  write("proc/self/cgroup", "0::/circle\n");
  fs::create_directories(root_ / "sys/fs/cgroup");
  fs::create_symlink("circle", root_ / "sys/fs/cgroup/circle");
  EXPECT_EQ(available_mib(), 700);
}

TEST_F(AvailableMemory, AThrottledGroupIsBounded) {
  write("proc/self/mountinfo", kMountV2);
  write("proc/self/cgroup", "0::/user\n");
  write("sys/fs/cgroup/user/memory.max", "max\n");
  write_mib("sys/fs/cgroup/user/memory.high", 400);
  write_mib("sys/fs/cgroup/user/memory.current", 500);
  EXPECT_EQ(available(), 0);
}

TEST_F(AvailableMemory, VersionOneUsesTheMemoryHierarchy) {
  write_machine(10000);
  write("proc/self/mountinfo",
        "34 33 0:31 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
        "37 33 0:34 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
        "43 33 0:40 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
  write("proc/self/cgroup", "4:cpu,cpuacct:/fast\n3:memory:/slurm/job_7\n0::/\n");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  write("sys/fs/cgroup/memory/slurm/job_7/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(available_mib(), 10000);
  write_mib("sys/fs/cgroup/memory/slurm/memory.limit_in_bytes", 1000);
  write_mib("sys/fs/cgroup/memory/slurm/memory.usage_in_bytes", 600);
  write("sys/fs/cgroup/memory/slurm/memory.stat",
        "inactive_file 5\ntotal_inactive_file " + std::to_string(100 * kMib) +
            "\ntotal_active_file " + std::to_string(20 * kMib) + "\n");
  EXPECT_EQ(available_mib(), 520);
}

// A version 1 container sees its outer name, but mounts only its own group.
TEST_F(AvailableMemory, AContainerFindsItsOwnGroupAtTheMount) {
  write("proc/self/mountinfo",
        "37 33 0:34 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n");
  write("proc/self/cgroup", "3:memory:/docker/abc\n");
  write_mib("sys/fs/cgroup/memory/memory.limit_in_bytes", 512);
  write_mib("sys/fs/cgroup/memory/memory.usage_in_bytes", 12);
  EXPECT_EQ(available_mib(), 500);
  write("proc/self/cgroup", "3:memory:/elsewhere\n");
  EXPECT_EQ(available_mib(), 500);
  // A separate group inside.
  write("proc/self/cgroup", "3:memory:/docker/abc/inner\n");
  write_mib("sys/fs/cgroup/memory/inner/memory.limit_in_bytes", 40);
  EXPECT_EQ(available_mib(), 40);
}

TEST_F(AvailableMemory, UnreadableFilesImposeNoLimit) {
  write("proc/self/mountinfo", "37 33 nonsense\n- cgroup2\n" + std::string(kMountV2));
  write("proc/self/cgroup", "\n:\n0\n");
  write("sys/fs/cgroup/memory.max", "many\n");
  write("proc/meminfo", "MemAvailable\nMemAvailable: none\n");
  EXPECT_FALSE(available_memory(root_).is_bounded());
}

TEST(AvailableMemoryHere, MatchesThisMachine) {
  const MemoryBound here = available_memory();
  EXPECT_GT(here.bytes, 0);
  EXPECT_TRUE(here.is_bounded());
  EXPECT_FALSE(here.source.empty());
}

// The limit is above what the process has mapped: under a sanitizer that is terabytes.
TEST(AvailableToProcess, FollowsItsLimits) {
  constexpr int64_t kLeft = int64_t{64} << 30;
  std::ostringstream status;
  status << std::ifstream("/proc/self/status").rdbuf();
  const auto used = parse_kib_field(status.str(), "VmData");
  ASSERT_TRUE(used);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_DATA, &before), 0);
  const rlimit limit{static_cast<rlim_t>(*used + kLeft), before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_DATA, &limit), 0);
  const MemoryBound data = available_to_process().data;
  EXPECT_EQ(::setrlimit(RLIMIT_DATA, &before), 0);
  EXPECT_LT(data.bytes, kLeft + kLeft / 2);
  EXPECT_GT(data.bytes, kLeft / 2);
  EXPECT_NE(data.source.find("ulimit -d of "), std::string::npos) << data.source;
}

}  // namespace
}  // namespace weft
