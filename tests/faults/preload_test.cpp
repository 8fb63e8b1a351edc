// tests/faults/preload_test.cpp: each kind of fault fires where a rule matches, and nowhere else.
#include "tests/faults/preload.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <fstream>
#include <set>
#include <sstream>

#include "tests/io/temporary_folder.h"
#include "tests/program.h"

namespace weft::testing {
namespace {

namespace fs = std::filesystem;

// A folder with the files victim and other (16 bytes each) and the folder tree/victims.
class Faults : public ::testing::Test {
 protected:
  void SetUp() override {
    std::ofstream(folder_ / "victim") << "0123456789abcdef";
    std::ofstream(folder_ / "other") << "0123456789abcdef";
    fs::create_directories(folder_ / "tree/victims");
    std::ofstream(folder_ / "tree/victims/leaf") << "x";
  }

  // What the program printed, without the end of the line; "exit N" or "signal N" where it failed.
  std::string call(const std::string& name, const std::string& file, const std::string& rules,
                   const std::string& more = "8") {
    const StartOptions options{.env = fault_env(rules, folder_ / "log"),
                               .program = WEFT_CALL_PROGRAM};
    const Ended ended = Program({name, (folder_ / file).string(), more}, options).wait();
    if (ended.signal != 0) return "signal " + std::to_string(ended.signal);
    if (ended.exit_code != 0) return "exit " + std::to_string(ended.exit_code);
    std::string text = ended.out;
    if (text.ends_with('\n')) text.pop_back();
    return text;
  }

  TemporaryFolder folder_;
};

struct Case {
  const char* kind;
  std::vector<const char*> calls;
};
const Case kCases[] = {
    {"open", {"open", "openat", "open_relative", "fopen", "ofstream"}},
    {"stat", {"stat", "fstat", "statx", "file_size"}},
    {"mkdir", {"mkdir", "create_directories"}},
    {"rename", {"rename", "rename_to", "renameat2"}},
    {"unlink", {"unlink", "remove", "remove_all"}},
    {"write", {"write", "pwrite", "writev", "ofstream"}},
    {"read", {"read", "pread"}},
    {"fsync", {"fsync", "fdatasync"}},
    {"truncate", {"ftruncate", "resize_file"}},
    {"fallocate", {"fallocate", "posix_fallocate"}},
    {"mmap", {"mmap"}},
    {"close", {"close"}},
};

// The last number that the program prints is the error.
bool ends_with_error(const std::string& text, int error) {
  return text == std::to_string(error) || text.ends_with(" " + std::to_string(error));
}

TEST_F(Faults, EveryCallOfAKindFailsOnlyOnThePath) {
  for (const Case& c : kCases) {
    for (const char* name : c.calls) {
      SetUp();
      const std::string rule = std::string(c.kind) + ":EDQUOT:victim";
      const std::string other = call(name, "other", rule), victim = call(name, "victim", rule);
      EXPECT_TRUE(ends_with_error(other, 0)) << name << other;
      EXPECT_TRUE(ends_with_error(victim, EDQUOT)) << name << victim;
      fs::remove_all(folder_ / "victim.d");
      fs::remove_all(folder_ / "other.d");
    }
  }
}

TEST_F(Faults, FoldersCannotBeListed) {
  for (const char* name : {"opendir", "directory_iterator"}) {
    for (const char* kind : {"open", "opendir", "readdir"}) {
      const std::string rule = std::string(kind) + ":EACCES:/tree";
      EXPECT_EQ(call(name, "tree/victims", "opendir:EACCES:nothing"), "0") << name;
      EXPECT_EQ(call(name, "tree/victims", rule), std::to_string(EACCES)) << name << " " << kind;
    }
  }
  // Below a folder that is open: the path is that of the descriptor and the name together.
  EXPECT_EQ(call("remove_all", "tree", "unlink:EIO:victims/leaf"), std::to_string(EIO));
  EXPECT_TRUE(fs::exists(folder_ / "tree/victims/leaf"));
}

TEST_F(Faults, FromTheNthOnAndCountTimes) {
  EXPECT_EQ(call("open_three_times", "victim", "open:EMFILE:victim:2"), "0, 24, 24, 0");
  EXPECT_EQ(call("open_three_times", "victim", "open:EMFILE:victim:2:1"), "0, 24, 0, 0");
  EXPECT_EQ(call("open_three_times", "victim", "open:EIO:victim:1:1;open:EMFILE:victim:2:1"),
            "5, 0, 24, 0");
}

TEST_F(Faults, BytesThatDoNotFit) {
  EXPECT_EQ(call("write", "victim", "write:short:victim", "9"), "5 bytes, 0");
  EXPECT_EQ(call("writev", "victim", "write:short:victim", "9"), "5 bytes, 0");
  EXPECT_EQ(call("read", "victim", "read:short:victim", "10"), "5 bytes, 0");
  // 20 bytes of space: 8, 8, then 4; the next finds none.
  EXPECT_EQ(call("write_three_times", "victim", "space:20:victim"),
            "8 bytes 0, 8 bytes 0, 4 bytes 0, 0");
  EXPECT_EQ(call("write_three_times", "victim", "space:8:victim"),
            "8 bytes 0, -1 bytes 28, -1 bytes 28, 0");
  EXPECT_EQ(call("write_three_times", "other", "space:8:victim"),
            "8 bytes 0, 8 bytes 0, 8 bytes 0, 0");
}

TEST_F(Faults, AKillReplacesTheCall) {
  EXPECT_EQ(call("rename", "victim", "rename:KILL:victim"), "signal " + std::to_string(SIGKILL));
  EXPECT_TRUE(fs::exists(folder_ / "victim"));
}

TEST_F(Faults, ACallThatWaitsIsMade) {
  const auto begun = std::chrono::steady_clock::now();
  EXPECT_EQ(call("write", "victim", "write:wait200:victim", "8"), "8 bytes, 0");
  EXPECT_GE(std::chrono::steady_clock::now() - begun, std::chrono::milliseconds(200));
}

TEST_F(Faults, ASeedRepeatsItsFaults) {
  EXPECT_EQ(call("open_three_times", "victim", "random:1:0:victim"), "0, 0, 0, 0");
  std::set<std::string> seen;
  for (int seed = 0; seed < 12; ++seed) {
    const std::string text =
        call("open_three_times", "victim", "random:" + std::to_string(seed) + ":0.5:victim");
    EXPECT_EQ(text,
              call("open_three_times", "victim", "random:" + std::to_string(seed) + ":0.5:victim"));
    seen.insert(text);
  }
  EXPECT_GT(seen.size(), 4u);
  EXPECT_NE(call("open", "victim", "random:1:1:victim"), "0");
  EXPECT_EQ(call("open", "other", "random:1:1:victim"), "0");
}

TEST_F(Faults, WhatFiredIsLogged) {
  call("open", "victim", "open:EACCES:victim");
  EXPECT_TRUE(
      slurp(folder_ / "log").ends_with(" open EACCES " + (folder_ / "victim").string() + "\n"))
      << slurp(folder_ / "log");
}

TEST_F(Faults, AnInvalidRuleEndsTheProgram) {
  for (const char* rule : {"opne:EIO:x", "open:EWHAT:x", "open:EIO", "open:EIO:x:no",
                           "mmap:short:x", "space:8", "random:1:x:y"}) {
    EXPECT_EQ(call("open", "victim", rule), "exit 99") << rule;
  }
}

}  // namespace
}  // namespace weft::testing
