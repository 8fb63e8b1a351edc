// tests/base/direct_reader_test.cpp: any range of a file, and how reading fails.
#include "base/direct_reader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "base/error.h"
#include "base/new_threads.h"
#include "tests/io/temporary_folder.h"

namespace weft {
namespace {

using testing::error_of;
using testing::TemporaryFolder;

TEST(DirectReader, AnyRangeIsRead) {
  const TemporaryFolder folder;
  std::string bytes(20000, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 7 + i / 256);
  std::ofstream(folder / "f", std::ios::binary) << bytes;
  const DirectReader reader(folder / "f");
  const ReadBuffer buffer(10000);
  for (const size_t begin : {0u, 1u, 4095u, 4096u, 4097u, 10000u, 19999u}) {
    for (const size_t size : {0u, 1u, 4095u, 4096u, 8193u, 10000u}) {
      if (begin + size > bytes.size()) continue;
      const auto* got = reinterpret_cast<const char*>(reader.read(begin, size, buffer));
      EXPECT_EQ(std::string(got, size), bytes.substr(begin, size)) << begin << " " << size;
    }
  }
}

TEST(DirectReader, FailuresAreNamed) {
  const TemporaryFolder folder;
  EXPECT_NE(error_of<UserError>([&] { DirectReader reader(folder / "none"); }).find("is missing"),
            std::string::npos);
  std::ofstream(folder / "f") << "0123456789";
  const DirectReader reader(folder / "f");
  const ReadBuffer buffer(100);
  const std::string ended = error_of<RunError>([&] { reader.read(4, 7, buffer); });
  EXPECT_NE(ended.find("it has 10 bytes now, wanted 11"), std::string::npos) << ended;
  // The kernel refuses address 0 with EIO, as a failing disk would.
  const DirectReader memory("/proc/self/mem");
  const std::string failed = error_of<RunError>([&] { memory.read(0, 8, buffer); });
  EXPECT_NE(failed.find("/proc/self/mem: Input/output error"), std::string::npos) << failed;
}

TEST(NewThreads, AllTasksRunOnceAndTheFirstErrorIsThrown) {
  std::vector<std::atomic<int>> runs(1000);
  run_on_new_threads(4, runs.size(), [&](size_t i) { ++runs[i]; });
  EXPECT_TRUE(std::all_of(runs.begin(), runs.end(), [](const auto& n) { return n == 1; }));
  std::atomic<int> started = 0;
  const std::string message = error_of<RunError>([&] {
    run_on_new_threads(1, 10, [&](size_t i) {
      ++started;
      if (i == 3) throw RunError("the fourth");
    });
  });
  EXPECT_NE(message.find("the fourth"), std::string::npos);
  EXPECT_EQ(started, 4);
}

}  // namespace
}  // namespace weft
