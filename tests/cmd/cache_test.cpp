// tests/cmd/cache_test.cpp: weft cache lists and clears, and leaves foreign files alone.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <fstream>

#include "base/json.h"
#include "tests/cmd/run_weft.h"

namespace weft {
namespace {

using testing::Ended;
using testing::run_weft;
using testing::TemporaryFolder;
namespace fs = std::filesystem;

class CacheCommand : public ::testing::Test {
 protected:
  CacheCommand() {
    ::setenv("XDG_CACHE_HOME", folder_.path().c_str(), 1);
    write("weft/speeds.json", "{}");
    write("weft/mine.json", "{}");
    write("weft/data/notes.txt", "mine");
  }
  ~CacheCommand() override { ::unsetenv("WEFT_CACHE_MAX"); }
  void write(const std::string& name, const std::string& text) const {
    fs::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name) << text;
  }
  // The files of a cache, as data/token_cache makes them.
  fs::path make(const std::string& key, size_t bytes) const {
    const std::string folder = "weft/data/" + key;
    for (const char* name : {"lock", "used", "index"}) write(folder + "/" + name, "");
    write(folder + "/tokens", std::string(bytes, 'x'));
    write(folder + "/about", R"({"files": "/data/wiki.txt and 2 more", "rows": 12345})");
    return folder_ / folder;
  }
  TemporaryFolder folder_;
};

TEST_F(CacheCommand, ListsEntries) {
  EXPECT_NE(run_weft("cache").out.find("data: 0, 0 B of at most 46.6 GiB (WEFT_CACHE_MAX)"),
            std::string::npos)
      << run_weft("cache").out;
  make("0123456789abcdef", 3 << 20);
  const Ended text = run_weft("cache");
  EXPECT_EQ(text.exit_code, 0) << text.err;
  for (const char* part : {"0123456789abcdef", "/data/wiki.txt and 2 more, 12,345 rows", "3 MiB",
                           "speeds.json", "total 3 MiB"}) {
    EXPECT_NE(text.out.find(part), std::string::npos) << part << "\n" << text.out;
  }
  EXPECT_EQ(text.out.find("mine.json"), std::string::npos);
  ::setenv("WEFT_CACHE_MAX", "20GB", 1);
  const Json json = parse_json(run_weft("cache --json").out, "output");
  EXPECT_EQ(json.at("max").as_int(), 20'000'000'000);
  ASSERT_EQ(json.at("caches").as_array().size(), 1u);
  EXPECT_GE(json.at("caches").as_array()[0].at("bytes").as_int(), 3 << 20);
  EXPECT_GT(json.at("caches").as_array()[0].at("last_used").as_int(), 0);
  EXPECT_EQ(json.at("speeds").as_array().size(), 1u);
  ::setenv("WEFT_CACHE_MAX", "lots", 1);
  const Ended wrong = run_weft("cache");
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_NE(wrong.err.find("WEFT_CACHE_MAX \"lots\": wanted a number and its unit"),
            std::string::npos)
      << wrong.err;
}

// The name of a data file must not control the terminal.
TEST_F(CacheCommand, NamesAreSafeForATerminal) {
  const fs::path folder = make("0123456789abcdef", 100);
  std::ofstream(folder / "about") << R"({"files": "a\u001b[31m\u009b2Jb.txt", "rows": 3})";
  const Ended text = run_weft("cache");
  EXPECT_EQ(text.out.find('\x1b'), std::string::npos);
  EXPECT_NE(text.out.find("a\\x1b[31m\\xc2\\x9b2Jb.txt, 3 rows"), std::string::npos) << text.out;
  const Ended json = run_weft("cache --json");
  EXPECT_EQ(json.out.find('\x1b'), std::string::npos);
  EXPECT_EQ(json.out.find("\xc2\x9b"), std::string::npos);
  const Json caches = parse_json(json.out, "output").at("caches");
  EXPECT_EQ(caches.as_array()[0].at("files").as_string(),
            "a\x1b[31m\xc2\x9b"
            "2Jb.txt");
}

TEST_F(CacheCommand, ClearsAllThatIsNotOpen) {
  const fs::path idle = make("0123456789abcdef", 100), open = make("fedcba9876543210", 100);
  const int fd = ::open((open / "used").c_str(), O_RDWR);
  ASSERT_EQ(::flock(fd, LOCK_SH), 0);
  Ended cleared = run_weft("cache --clear");
  EXPECT_EQ(cleared.exit_code, 0) << cleared.err;
  EXPECT_NE(cleared.out.find("kept " + open.string() + ": a process has it open"),
            std::string::npos)
      << cleared.out;
  EXPECT_NE(cleared.out.find("removed 1 token cache and 1 of speeds"), std::string::npos);
  EXPECT_FALSE(fs::exists(idle));
  EXPECT_TRUE(fs::exists(open / "tokens"));
  ::close(fd);
  cleared = run_weft("cache --clear");
  EXPECT_FALSE(fs::exists(open));
  EXPECT_TRUE(fs::exists(folder_ / "weft/mine.json"));
  EXPECT_TRUE(fs::exists(folder_ / "weft/data/notes.txt"));
  EXPECT_FALSE(fs::exists(folder_ / "weft/speeds.json"));
  EXPECT_EQ(run_weft("cache --clear --json").exit_code, 2);
}

}  // namespace
}  // namespace weft
