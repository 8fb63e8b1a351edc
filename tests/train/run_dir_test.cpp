// tests/train/run_dir_test.cpp: two starts in a directory that does not exist yet.
#include "train/run_dir.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"
#include "tests/io/temporary_folder.h"

namespace weft {
namespace {

using testing::error_of;
using testing::TemporaryFolder;

class NewRunDir : public ::testing::Test {
 protected:
  NewRunDir() {
    std::ofstream(folder_ / "run.yaml") << "name: a\nmodel: {path: m}\ndata: {train: [t.txt]}\n";
    options_.run_dir = folder_ / "new";
  }
  RunFile file() const { return RunFile(folder_ / "run.yaml", {}); }

  TemporaryFolder folder_;
  TrainOptions options_;
};

// Both have found nothing and would start at step 0; the first has trained and ended before the
// second one writes.
TEST_F(NewRunDir, TheSecondStartDoesNotTrainOverTheFirst) {
  for (const bool overwrite : {false, true}) {
    options_.run_dir = folder_ / (overwrite ? "overwritten" : "new");
    options_.overwrite = overwrite;
    RunStart second = open_run_dir(file(), options_);
    EXPECT_FALSE(std::filesystem::exists(options_.run_dir));  // looking creates nothing
    {
      RunStart first = open_run_dir(file(), options_);
      prepare_run_dir(file(), &first, 0, overwrite);
      std::ofstream(options_.run_dir / "checkpoints" / "work") << "of the first";
    }
    const std::string error =
        error_of<UserError>([&] { prepare_run_dir(file(), &second, 0, overwrite); });
    EXPECT_NE(error.find("another process has trained in "), std::string::npos) << error;
    EXPECT_TRUE(std::filesystem::exists(options_.run_dir / "checkpoints" / "work"));
  }
}

TEST_F(NewRunDir, TheSecondStartIsRefusedWhileTheFirstTrains) {
  RunStart second = open_run_dir(file(), options_), first = open_run_dir(file(), options_);
  prepare_run_dir(file(), &first, 0, false);
  const std::string error =
      error_of<UserError>([&] { prepare_run_dir(file(), &second, 0, false); });
  EXPECT_NE(error.find("another process is training in "), std::string::npos) << error;
}

// What the first one is still writing must not be judged.
TEST_F(NewRunDir, NothingIsReadWhileAnotherTrains) {
  RunStart first = open_run_dir(file(), options_);
  prepare_run_dir(file(), &first, 0, false);
  for (const char* half_written : {"run.yaml", "final"}) {
    std::ofstream(options_.run_dir / half_written) << "name: other\n";
    for (const bool overwrite : {false, true}) {
      options_.overwrite = overwrite;
      const std::string error = error_of<UserError>([&] { open_run_dir(file(), options_); });
      EXPECT_NE(error.find("another process is training in "), std::string::npos) << error;
    }
  }
}

}  // namespace
}  // namespace weft
