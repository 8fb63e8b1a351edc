// tests/train/stored_run_test.cpp: who wrote a run.yaml, truncated at any byte.
#include "train/stored_run.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"
#include "config/run_changes.h"
#include "config/run_config.h"
#include "tests/io/temporary_folder.h"

namespace weft {
namespace {

using testing::error_of;
using testing::TemporaryFolder;

class StoredRunTest : public ::testing::Test {
 protected:
  StoredRun find(const std::string& text) const {
    std::ofstream(folder_ / "run.yaml", std::ios::binary) << text;
    return find_stored_run(folder_.path());
  }
  std::string resolved() const {
    const std::string text = "name: a\nmodel: {path: m}\ndata: {train: [t.txt]}\n";
    std::ofstream(folder_ / "given.yaml", std::ios::binary) << text;
    return RunFile(folder_ / "given.yaml", {}).resolved();
  }

  TemporaryFolder folder_;
};

TEST_F(StoredRunTest, IsRecognizedByItsMarks) {
  EXPECT_EQ(find_stored_run(folder_.path()), StoredRun::kNone);
  EXPECT_EQ(find(""), StoredRun::kNone);
  EXPECT_EQ(find(resolved()), StoredRun::kWhole);
  EXPECT_EQ(find("name: a\nmodel: {path: m}\n"), StoredRun::kNotOurs);
  EXPECT_EQ(find(std::string(2 << 20, '#')), StoredRun::kNotOurs);
  EXPECT_EQ(find(resolved() + "{ [\n"), StoredRun::kCut);
}

// Wherever it is truncated, it is never mistaken for a complete one of another training.
TEST_F(StoredRunTest, ATruncationIsDetectedAtEveryByte) {
  const std::string whole = resolved();
  for (size_t size = 1; size < whole.size(); ++size) {
    const std::string part = whole.substr(0, size);
    if (find(part) != StoredRun::kWhole) continue;
    const RunChanges changes = compare_runs(part, whole);
    EXPECT_TRUE(changes.refused.empty() && changes.future.empty()) << size;
  }
}

TEST_F(StoredRunTest, AUsersFileIsNotReplaced) {
  find("name: a\n");
  const std::string said = error_of<UserError>([&] { check_run_yaml(folder_.path(), ""); });
  EXPECT_NE(said.find("would replace it"), std::string::npos) << said;
  find(resolved());
  check_run_yaml(folder_.path(), folder_ / "given.yaml");
  EXPECT_THROW(check_run_yaml(folder_.path(), folder_ / "./run.yaml"), UserError);
  std::ofstream(folder_ / "events.jsonl") << "{\"event\": \"started\"}\n";
  check_run_yaml(folder_.path(), folder_ / "run.yaml");  // a run's own file, given again
  EXPECT_TRUE(is_run_dir(folder_.path()));
}

}  // namespace
}  // namespace weft
