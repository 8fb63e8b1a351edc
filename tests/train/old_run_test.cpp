// tests/train/old_run_test.cpp: --overwrite deletes a run's files, and nothing that no run wrote.
#include "train/old_run.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"
#include "tests/io/temporary_folder.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using testing::error_of;
using testing::TemporaryFolder;

void put(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

std::string refused(const fs::path& dir) {
  return error_of<UserError>([&] { check_old_run(dir); });
}

TEST(OldRun, IsRecognizedByItsRunFileOrItsEvents) {
  for (const auto& [name, text] : {std::pair{"run.yaml", "seed: 1  # default\n"},
                                   {"run.yaml", "seed: 1  # not built\n"},
                                   {"events.jsonl", "{\"event\": \"started\"}\n"}}) {
    TemporaryFolder folder;
    put(folder / name, text);
    put(folder / "metrics.jsonl", "{}\n");
    for (const char* entry :
         {"checkpoints/step-00000001/x", "checkpoints/step-00000009.damaged-2/x",
          "checkpoints/best/x", "checkpoints/abandoned/x", "log/rank-00000.log"})
      put(folder / entry, "x");
    check_old_run(folder.path());
    put(folder / "notes.txt", "mine");
    remove_old_run(folder.path());
    EXPECT_TRUE(fs::exists(folder / "notes.txt"));
    EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()), 1);
  }
}

TEST(OldRun, ForeignFilesAreRejectedByName) {
  for (const char* entry : {"checkpoints/step-x/a", "checkpoints/step-/a", "checkpoints/step-:1/a",
                            "checkpoints/step-00000020-copy/a", "checkpoints/step-00000020.good/a",
                            "checkpoints/step-20/a", "checkpoints/best-copy/a",
                            "checkpoints/model/a", "log/rank-0.txt", "log/other.log"}) {
    TemporaryFolder folder;
    put(folder / "run.yaml", "seed: 1  # default\n");
    put(folder / entry, "x");
    const fs::path path = entry;
    const std::string name =
        path.string().starts_with("log") ? path.string() : path.parent_path().string();
    EXPECT_NE(refused(folder.path()).find("would delete " + name + " in"), std::string::npos)
        << refused(folder.path());
  }
  TemporaryFolder folder;
  put(folder / "run.yaml", "seed: 1\n");  // written by hand
  put(folder / "events.jsonl", "[]\n");
  put(folder / "metrics.jsonl", "");
  fs::create_directories(folder / "checkpoints");
  const std::string text = refused(folder.path());
  EXPECT_NE(text.find("holds no weft run"), std::string::npos) << text;
  EXPECT_NE(text.find("would delete events.jsonl, run.yaml, which"), std::string::npos) << text;
}

TEST(OldRun, EmptyFilesAndFoldersMayBeDeleted) {
  TemporaryFolder folder;
  put(folder / "metrics.jsonl", "");
  fs::create_directories(folder / "checkpoints");
  fs::create_directories(folder / "log");
  check_old_run(folder.path());
  check_old_run(folder / "nowhere");
}

// An interrupted removal has renamed something, and is finished.
TEST(OldRun, WhatWasRenamedIsRemoved) {
  TemporaryFolder folder;
  put(folder / "checkpoints.removing/step-00000001/x", "x");
  put(folder / "final/x", "x");
  remove_renamed(folder.path());
  EXPECT_FALSE(fs::exists(folder / "checkpoints.removing"));
  EXPECT_TRUE(fs::exists(folder / "final/x"));
}

}  // namespace
}  // namespace weft
