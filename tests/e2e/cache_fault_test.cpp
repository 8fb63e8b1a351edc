// tests/e2e/cache_fault_test.cpp: a token cache on a disk with interrupted, short or failing calls.
#include <gtest/gtest.h>

#include "tests/e2e/tiny_run.h"
#include "tests/faults/preload.h"

namespace weft::testing {
namespace {

namespace fs = std::filesystem;

// Packed rows have their cache on disk, however few they are; a run by epochs needs all of it, a
// short one only the first batches, which are built without it.
struct CachedRun : TinyRun {
  const std::vector<std::string> sets = {
      "data.train=[" + fs::absolute("tests/data/data/rows.jsonl.gz").string() + "]",
      "data.text={text}", "train.steps=null", "train.epochs=1"};
  Ended train_with(const std::string& name, const std::string& rules,
                   const std::string& cache) const {
    StartOptions options;
    if (!rules.empty()) options.env = fault_env(rules, *this / ("fired-" + name));
    options.env["XDG_CACHE_HOME"] = (*this / cache).string();
    std::vector<std::string> all = sets;
    all.push_back("name=" + name);
    return run_to_end(words("train", all), options);
  }
};

TEST(CacheFaults, InterruptedAndShortCallsAreRetried) {
  const CachedRun run;
  ASSERT_EQ(run.train_with("whole", "", "full").exit_code, 0);
  const std::pair<const char*, const char*> cases[] = {{"written", "write:EINTR:/tokens:1:2"},
                                                       {"short", "write:short:/tokens:1:2"},
                                                       {"read", "read:EINTR:/tokens:1:3"},
                                                       {"less", "read:short:/tokens:1:3"}};
  for (const auto& [name, rules] : cases) {
    // What is read was written earlier, by another run.
    const bool reads = std::string(rules).starts_with("read");
    const Ended ended = run.train_with(name, rules, reads ? "full" : name);
    EXPECT_EQ(ended.exit_code, 0) << name << ended.err;
    EXPECT_TRUE(fs::exists(run / (std::string("fired-") + name))) << name;
    EXPECT_EQ(metric_texts(run.dir(name), "loss"), metric_texts(run.dir("whole"), "loss")) << name;
  }
}

TEST(CacheFaults, UnreadableAndUnwritableFilesAreNamed) {
  const CachedRun run;
  ASSERT_EQ(run.train_with("whole", "", "full").exit_code, 0);
  for (const auto& [rules, cache] :
       {std::pair{"read:EIO:/tokens", "full"}, {"write:EIO:/tokens", "empty"}}) {
    const Ended ended = run.train_with(cache, rules, cache);
    EXPECT_EQ(ended.exit_code, 1) << rules << ended.err;
    expect_parts(ended.err, {"/tokens", "Input/output error"});
  }
}

}  // namespace
}  // namespace weft::testing
