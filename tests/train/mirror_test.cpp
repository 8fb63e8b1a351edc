// tests/train/mirror_test.cpp: addresses of runs in an object store, and the places of their
// mirrors.
#include "train/mirror.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/io/temporary_folder.h"
#include "train/run_dir.h"

namespace weft {
namespace {

using testing::TemporaryFolder;

TEST(Mirror, ARunsNameGoesBeforeTheQuery) {
  EXPECT_EQ(join_address("s3://b/p", "run"), "s3://b/p/run");
  EXPECT_EQ(join_address("s3://b/p/", "run"), "s3://b/p/run");
  EXPECT_EQ(join_address("s3://b?region=x", "run"), "s3://b/run?region=x");
}

TEST(Mirror, ItsPlaceDependsOnTheAddressWithoutTheQuery) {
  const auto at = mirror_of("s3://b/p/run", "far");
  EXPECT_EQ(at.parent_path(), "far");
  EXPECT_TRUE(at.filename().string().starts_with("run-"));
  EXPECT_EQ(mirror_of("s3://b/p/run?region=x", "far"), at);
  EXPECT_NE(mirror_of("s3://b/q/run", "far"), at);
}

TEST(Mirror, TheRunDirectoryOfAnAddressIsItsMirror) {
  RunConfig c;
  c.name = "run";
  c.storage = "here";
  TrainOptions options;
  EXPECT_EQ(run_address_of(c, options), "");
  EXPECT_EQ(run_dir_of(c, options), "here/run");
  options.run_dir = "s3://b/p/run";
  c.checkpoint.fallback = "far";
  EXPECT_EQ(run_address_of(c, options), "s3://b/p/run");
  EXPECT_EQ(run_dir_of(c, options), mirror_of("s3://b/p/run", "far"));
  c.storage = "s3://b/p";
  EXPECT_EQ(run_dir_of(c, {}), mirror_of("s3://b/p/run", "far"));
  options.run_dir = "there";  // goes before storage
  EXPECT_EQ(run_address_of(c, options), "");
}

TEST(Mirror, ItsStateIsReadBackAndAnythingElseIsAsNew) {
  const TemporaryFolder folder;
  EXPECT_EQ(read_mirror_state(folder.path()).token, "");
  write_mirror_state(folder.path(), {"t", "n", {"checkpoints/step-00000001"}, "b", "f"});
  const MirrorState state = read_mirror_state(folder.path());
  EXPECT_EQ(state.token + state.next_token + state.best + state.final, "tnbf");
  EXPECT_EQ(state.pushed, (std::set<std::string>{"checkpoints/step-00000001"}));
  std::ofstream(folder / ".mirror.json") << "{\"token\": \"t\"";
  EXPECT_EQ(read_mirror_state(folder.path()).token, "");
}

}  // namespace
}  // namespace weft
