// tests/data/file_samples_test.cpp: equal files have equal fingerprints, other ones do not.
#include "data/file_samples.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "tests/data/helpers.h"

namespace weft::testing {
namespace {

std::string rows(int64_t number) {
  std::string text;
  for (int64_t i = 0; i < number; ++i) text += "row " + std::to_string(i) + "\n";
  return text;
}

class FileSamples : public ::testing::Test {
 protected:
  std::string describe(const std::string& folder, const std::string& text) {
    temp_.write(folder + "/train.txt", text);
    return describe_files({path_of(folder)});
  }
  FileInfo path_of(const std::string& folder) const {
    return file_info((temp_.path() / folder / "train.txt").string());
  }

 private:
  TempFolder temp_;
};

TEST_F(FileSamples, AreTheSameWhereverTheFilesAre) {
  for (const int64_t number : {0, 1, 100, 50'000}) {
    const std::string text = rows(number), here = describe("a", text);
    EXPECT_EQ(here, describe("b", text));
    EXPECT_EQ(here.find("train.txt, " + std::to_string(text.size()) + " bytes, "), 0U) << here;
  }
}

TEST_F(FileSamples, DifferForOtherRows) {
  const std::string text = rows(50'000), here = describe("a", text);
  std::string reversed = text, last = text, first = text;
  std::reverse(reversed.begin(), reversed.end());
  first.front() = last.back() = 'x';
  for (const std::string& other : {rows(49'999), reversed, first, last})
    EXPECT_NE(here, describe("b", other));
  EXPECT_NE(describe("a", "one"), describe("b", "two"));
}

// Changes a byte outside all samples, and not in the first piece.
TEST_F(FileSamples, AHashOfTheWholeFileFindsEveryByte) {
  std::string bytes(size_t{20} << 20, 'x');
  const auto whole = [&](const std::string& folder) {
    const std::string sample = describe(folder, bytes);
    return std::pair{sample, describe_whole_files({path_of(folder)}, 2)};
  };
  const auto here = whole("a");
  EXPECT_EQ(whole("b"), here);
  EXPECT_EQ(here.second.find("train.txt, 20971520 bytes, "), 0U) << here.second;
  bytes[(size_t{20} << 20) - 5000] = 'y';
  const auto other = whole("b");
  EXPECT_EQ(other.first, here.first);
  EXPECT_NE(other.second, here.second);
  bytes.clear();
  EXPECT_EQ(whole("a").second, whole("b").second);
  EXPECT_THROW(describe_whole_files({FileInfo{"/gone/model.safetensors", 7, 0}}, 2), RunError);
}

TEST_F(FileSamples, ReadOnlySomeOfManyFiles) {
  const FileInfo gone{"/gone/rows.txt", 100, 0}, remote{"s3://bucket/rows.txt", 100, 0};
  EXPECT_EQ(describe_files({remote}), "rows.txt, 100 bytes\n");
  const std::string text = describe_files(std::vector<FileInfo>(10'000, gone));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 10'000);
  EXPECT_LE(std::count(text.begin(), text.end(), ','), 10'064);
  EXPECT_EQ(describe_files({}), "");
}

// As a model in several files is described.
TEST_F(FileSamples, ReadEveryFileWhereThatIsWanted) {
  const FileSampling every = {32, std::numeric_limits<size_t>::max()};
  const std::string one = describe("a", "one"), two = describe("b", "two");
  EXPECT_EQ(describe_files({path_of("a"), path_of("b"), path_of("a")}, every), one + two + one);
  EXPECT_EQ(describe_files({}, every), "");
}

}  // namespace
}  // namespace weft::testing
