// tests/base/file_test.cpp: whole, mapped and atomic files; failures name the path.
#include "base/file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <filesystem>
#include <string>

#include "base/direct_file.h"
#include "base/direct_reader.h"
#include "base/error.h"
#include "base/log.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

class Files : public ::testing::Test {
 protected:
  Files() {
    std::string name = (fs::temp_directory_path() / "weft_file_XXXXXX").string();
    folder = ::mkdtemp(name.data());
  }
  ~Files() override { fs::remove_all(folder); }
  fs::path folder;
};

TEST_F(Files, AtomicWriteAndRead) {
  const fs::path path = folder / "a.txt";
  write_file_atomic(path, "one");
  write_file_atomic(path, std::string("t\0o", 3));
  EXPECT_EQ(read_file(path), std::string("t\0o", 3));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), fs::directory_iterator()), 1);
}

TEST_F(Files, AFailedWriteLeavesTheOldFile) {
  const fs::path path = folder / "a.txt";
  write_file_atomic(path, "old");
  // A file size limit stands in for a full disk.
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit small = before;
  small.rlim_cur = 1000;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  EXPECT_THROW(write_file_atomic(path, std::string(5000, 'x')), RunError);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_EQ(read_file(path), "old");
}

TEST_F(Files, FailuresNameThePath) {
  try {
    read_file(folder / "absent");
    FAIL();
  } catch (const UserError& e) {
    EXPECT_NE(std::string(e.what()).find("absent"), std::string::npos);
  }
  EXPECT_THROW(read_file(folder), UserError);  // a folder is not a file
  EXPECT_THROW(MappedFile(folder / "absent"), UserError);
  EXPECT_THROW(write_file_atomic(folder / "no" / "such", "x"), RunError);
  EXPECT_THROW(FileWriter(folder / "no" / "such", FileWriter::Mode::kAppend), RunError);
}

TEST_F(Files, BoundedRead) {
  write_file_atomic(folder / "a", "12345");
  EXPECT_EQ(read_file(folder / "a", 5), "12345");
  EXPECT_THROW(read_file(folder / "a", 4), UserError);
}

TEST_F(Files, Mapped) {
  write_file_atomic(folder / "a", "abc");
  write_file_atomic(folder / "empty", "");
  MappedFile a(folder / "a");
  EXPECT_EQ(a.text(), "abc");
  MappedFile moved(std::move(a));
  EXPECT_EQ(moved.text(), "abc");
  MappedFile empty(folder / "empty");
  EXPECT_EQ(empty.size(), 0u);
  empty = std::move(moved);
  EXPECT_EQ(empty.text(), "abc");
}

TEST_F(Files, WriterAppendsAndTruncates) {
  const fs::path path = folder / "log";
  {
    FileWriter out(path, FileWriter::Mode::kTruncate);
    out.write("one\n");
    FileWriter moved(std::move(out));
    moved.write("two\n");
    moved.sync();
  }
  FileWriter(path, FileWriter::Mode::kAppend).write("three\n");
  EXPECT_EQ(read_file(path), "one\ntwo\nthree\n");
  FileWriter(path, FileWriter::Mode::kTruncate).write("x");
  EXPECT_EQ(read_file(path), "x");
}

// Reads and writes do not block on a FIFO without a peer.
TEST_F(Files, OnlyPlainFilesAreOpened) {
  const fs::path fifo = folder / "fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  const auto expect_refused = [](const auto& open, const std::string& words) {
    try {
      open();
      ADD_FAILURE() << words;
    } catch (const UserError& e) {
      EXPECT_NE(std::string(e.what()).find(words), std::string::npos) << e.what();
    }
  };
  for (const auto& [path, kind] :
       {std::pair(fifo, "a FIFO"), std::pair(fs::path("/dev/null"), "a device")}) {
    const std::string words = path.string() + " is " + kind + ", wanted a regular file";
    expect_refused([&] { read_file(path); }, words);
    expect_refused([&] { MappedFile{path}; }, words);
    expect_refused([&] { FileWriter(path, FileWriter::Mode::kAppend); }, words);
    expect_refused([&] { FileWriter(path, FileWriter::Mode::kTruncate); }, words);
    expect_refused([&] { DirectFile(path, 0); }, words);
    expect_refused([&] { DirectReader{path}; }, words);
    expect_refused([&] { set_log_file(path); }, words);
  }
}

}  // namespace
}  // namespace weft
