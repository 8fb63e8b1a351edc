// tests/checkpoint/list_test.cpp: damaged checkpoints are skipped and kept; unreadable ones stop
// the run.
#include "checkpoint/list.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "base/error.h"
#include "checkpoint/damaged.h"
#include "tests/checkpoint/commit_again.h"
#include "tests/checkpoint/two_tensors.h"
#include "tests/io/temporary_folder.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using testing::error_of;
using testing::flip_byte;
using testing::numbered;
using testing::read_a;
using testing::TemporaryFolder;
using testing::write_two;

// While it lives no file can be opened (EMFILE), but stat still works.
class NoMoreFiles {
 public:
  NoMoreFiles() {
    // UBSan opens a pipe to look at an object of a type that it has not seen before.
    error_of<RunError>([] { throw RunError("no files"); });
    const int next = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    ::close(next);
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &before_), 0);
    const rlimit none{static_cast<rlim_t>(next), before_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  }
  ~NoMoreFiles() { ::setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& e : fs::directory_iterator(folder)) names.push_back(e.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

struct RunWithThree : TemporaryFolder {
  RunWithThree() {
    for (int64_t step : {1, 2, 3}) write_two(at(step), static_cast<float>(step), step);
  }
  fs::path at(int64_t step) const { return checkpoint_path(path(), step); }
  fs::path file(int64_t step) const { return at(step) / "rank-00000.safetensors"; }
  std::vector<std::string> names() const { return names_in(*this / "checkpoints"); }
};

TEST(SoundCheckpoint, TheNewestIsFoundAndNothingChanges) {
  const TemporaryFolder empty;
  EXPECT_EQ(find_sound_checkpoint(empty.path()).sound, std::nullopt);
  const RunWithThree run;
  EXPECT_EQ(find_sound_checkpoint(run.path()).sound, run.at(3));
  EXPECT_EQ(find_sound_checkpoint(run.path()).state.at("step").as_int(), 3);
  flip_byte(run.file(3), 12);  // of its header
  fs::remove(run.file(2));
  fs::create_directories(run / "checkpoints/step-00000009");
  const auto before = run.names();
  const CheckpointSearch found = find_sound_checkpoint(run.path());
  EXPECT_EQ(found.sound, run.at(1));
  ASSERT_EQ(found.damaged.size(), 3u);
  EXPECT_EQ(found.damaged[0].path, run.at(9));
  EXPECT_NE(found.damaged[0].reason.find("COMMITTED"), std::string::npos);
  EXPECT_EQ(found.damaged[1].path, run.at(3));
  EXPECT_NE(found.damaged[2].reason.find("is missing"), std::string::npos);
  EXPECT_EQ(run.names(), before);
}

// The bytes of slices are checked by those who read them; what they find is passed over.
TEST(SoundCheckpoint, KnownDamageIsSkipped) {
  const RunWithThree run;
  flip_byte(run.file(3), -1);
  EXPECT_EQ(find_sound_checkpoint(run.path()).sound, run.at(3));
  const CheckpointSearch found = find_sound_checkpoint(run.path(), {{run.at(3), "a slice"}});
  EXPECT_EQ(found.sound, run.at(2));
  ASSERT_EQ(found.damaged.size(), 1u);
  EXPECT_EQ(found.damaged[0].path, run.at(3));
  EXPECT_EQ(found.damaged[0].reason, "a slice");
}

TEST(SoundCheckpoint, UnreadableIsNotDamaged) {
  const RunWithThree run;
  const auto before = run.names();
  {
    const NoMoreFiles limit;
    for (const auto& fn : std::vector<std::function<void()>>{
             [&] { list_checkpoints(run.path()); }, [&] { find_sound_checkpoint(run.path()); },
             [&] { CheckpointReader(run.at(3)); }, [&] { prune_checkpoints(run.path(), 1); },
             [&] { remove_unfinished(run.path()); }}) {
      const std::string message = error_of<RunError>(fn);
      EXPECT_NE(message.find(run.path().string()), std::string::npos) << message;
      EXPECT_NE(message.find("ulimit -n"), std::string::npos) << message;
    }
  }
  const CheckpointReader reader(run.at(3));
  {
    const NoMoreFiles limit;  // the index was read, the slices were not
    EXPECT_NE(error_of<RunError>([&] { reader.verify(); }).find("rank-00000"), std::string::npos);
  }
  reader.verify();
  EXPECT_EQ(run.names(), before);
}

// A disk that is not mounted now.
TEST(SoundCheckpoint, ADanglingLinkStops) {
  const RunWithThree run;
  fs::rename(run.at(3), run / "moved");
  fs::create_symlink(run / "moved", run.at(3));
  EXPECT_EQ(find_sound_checkpoint(run.path()).sound, run.at(3));
  fs::rename(run / "moved", run / "away");
  EXPECT_NE(error_of<RunError>([&] { find_sound_checkpoint(run.path()); }).find("dangling"),
            std::string::npos);
  fs::rename(run / "checkpoints", run / "all");
  fs::create_symlink(run / "unmounted", run / "checkpoints");
  EXPECT_NE(error_of<RunError>([&] { list_checkpoints(run.path()); }).find("dangling"),
            std::string::npos);
}

TEST(SoundCheckpoint, EveryFileIsCovered) {
  for (const char* file :
       {"index.json", "state.json", "config.json", "tokenizer.json", "COMMITTED"}) {
    const RunWithThree run;
    flip_byte(run.at(3) / file, 0);
    EXPECT_EQ(find_sound_checkpoint(run.path()).sound, run.at(2)) << file;
    fs::resize_file(run.at(2) / file, fs::file_size(run.at(2) / file) - 1);
    EXPECT_EQ(find_sound_checkpoint(run.path()).sound, run.at(1)) << file;
    if (std::string(file) == "COMMITTED") {  // without it there is no checkpoint
      fs::resize_file(run.at(1) / file, 0);
      EXPECT_EQ(find_sound_checkpoint(run.path()).sound, std::nullopt);
      continue;
    }
    fs::remove(run.at(1) / file);
    EXPECT_EQ(find_sound_checkpoint(run.path()).sound, std::nullopt) << file;
  }
}

// Valid JSON with another digit: only the hash reveals it.
TEST(SoundCheckpoint, AnotherDigitIsDamage) {
  const RunWithThree run;
  std::string state = read_file(run.at(3) / "state.json");
  state.replace(state.find('3'), 1, "4");
  std::ofstream(run.at(3) / "state.json") << state;
  const std::string message = error_of<DamagedCheckpoint>([&] { CheckpointReader(run.at(3)); });
  EXPECT_NE(message.find("state.json is damaged"), std::string::npos) << message;
}

TEST(SoundCheckpoint, ANewerFormatIsNotDamage) {
  const RunWithThree run;
  std::string index = read_file(run.at(3) / "index.json");
  index.replace(index.find("checkpoint 1"), 12, "checkpoint 2");
  std::ofstream(run.at(3) / "index.json") << index;
  commit_again(run.at(3));
  try {
    find_sound_checkpoint(run.path());
    FAIL();
  } catch (const DamagedCheckpoint& e) {
    FAIL() << e.what();
  } catch (const UserError& e) {
    EXPECT_NE(std::string(e.what()).find("checkpoint 2"), std::string::npos) << e.what();
  }
}

TEST(SetAside, NamesAreNewAndNothingIsLost) {
  const RunWithThree run;
  EXPECT_EQ(set_aside_damaged(run.at(3)), run / "checkpoints/step-00000003.damaged");
  write_two(run.at(3), 30, 3);
  EXPECT_EQ(set_aside_damaged(run.at(3)), run / "checkpoints/step-00000003.damaged-2");
  EXPECT_EQ(read_a(run / "checkpoints/step-00000003.damaged"), numbered({6, 4}, 3));
  EXPECT_EQ(read_a(run / "checkpoints/step-00000003.damaged-2"), numbered({6, 4}, 30));
  prune_checkpoints(run.path(), 1);
  remove_unfinished(run.path());
  EXPECT_EQ(list_set_aside(run.path()),
            (std::vector<std::string>{"step-00000003.damaged", "step-00000003.damaged-2"}));
  EXPECT_EQ(list_checkpoints(run.path()), std::vector<fs::path>{run.at(2)});
}

TEST(SetAside, LaterCheckpointsAreAbandoned) {
  const RunWithThree run;
  write_two(run / "checkpoints/best", 3);
  fs::create_directories(run / "checkpoints/step-00000005");
  EXPECT_EQ(abandon_checkpoints_after(run.path(), 1, run.at(1)).size(), 2u);
  EXPECT_EQ(list_checkpoints(run.path()), std::vector<fs::path>{run.at(1)});
  EXPECT_EQ(read_a(run / "checkpoints/abandoned/step-00000003"), numbered({6, 4}, 3));
  EXPECT_TRUE(is_checkpoint(run / "checkpoints/best"));
  EXPECT_TRUE(fs::exists(run.at(5)));  // incomplete: not handled here
  // From another run: our own checkpoint of that step is not the start.
  write_two(run / "other", 7);
  write_two(run.at(3), 33, 3);
  const auto moved = abandon_checkpoints_after(run.path(), 1, run / "other");
  ASSERT_EQ(moved.size(), 2u);
  EXPECT_EQ(moved[0], run / "checkpoints/abandoned/step-00000003-2");
  EXPECT_EQ(moved[1], run / "checkpoints/abandoned/step-00000001");
  EXPECT_EQ(list_set_aside(run.path()).size(), 4u);
  EXPECT_TRUE(abandon_checkpoints_after(run / "nowhere", 0, run / "other").empty());
}

// A run from step 0 has no best; a damaged one is not considered sound.
TEST(SetAside, ASoundBestIsAbandonedByANewRun) {
  const RunWithThree run;
  EXPECT_FALSE(find_sound_best(run.path()));
  EXPECT_FALSE(abandon_best(run.path(), fs::path()));
  write_two(run / "checkpoints/best", 9, 2);
  ASSERT_TRUE(find_sound_best(run.path()));
  EXPECT_EQ(find_sound_best(run.path())->step, 2);
  EXPECT_EQ(find_sound_best(run.path())->path, run / "checkpoints/best");
  EXPECT_FALSE(abandon_best(run.path(), run / "checkpoints/best"));  // the run starts from it
  EXPECT_EQ(abandon_best(run.path(), fs::path()), run / "checkpoints/abandoned/best");
  write_two(run / "checkpoints/best", 9, 2);
  flip_byte(run / "checkpoints/best/rank-00000.safetensors", -1);
  EXPECT_FALSE(find_sound_best(run.path()));
  const NoMoreFiles none;
  EXPECT_THROW(find_sound_best(run.path()), RunError);
}

TEST(SetAside, AnInterruptedDeletionIsNotDamage) {
  const RunWithThree run;
  fs::rename(run.at(1), run / "checkpoints/step-00000001.removing");
  fs::remove(run / "checkpoints/step-00000001.removing/index.json");
  fs::create_directories(run / "checkpoints/step-00000004.writing");
  EXPECT_TRUE(find_sound_checkpoint(run.path()).damaged.empty());
  EXPECT_TRUE(list_set_aside(run.path()).empty());
  remove_unfinished(run.path());
  EXPECT_EQ(run.names(), (std::vector<std::string>{"step-00000002", "step-00000003"}));
}

}  // namespace
}  // namespace weft
