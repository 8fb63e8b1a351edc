// tests/train/record_test.cpp: what a record that is made again, in a recovery, still knows.
#include "train/record.h"

#include <gtest/gtest.h>

#include "tests/io/temporary_folder.h"

namespace weft {
namespace {

// "finished step 400 in ..." counts the time before a recovery, as the lines of metrics.jsonl do.
TEST(RunRecord, CountsTheTimeOfTheWholeRun) {
  const testing::TemporaryFolder folder;
  RecordOptions options;
  options.dir = folder.path();
  options.quiet = true;
  RunRecord first(options);
  Json saved = first.save();
  saved.set("time_s", Json(100.0));
  options.saved = saved;
  const RunRecord second(options);
  EXPECT_LT(second.seconds(), 50);
  EXPECT_GE(second.total_seconds(), 100);
  EXPECT_LT(second.total_seconds(), 150);
}

}  // namespace
}  // namespace weft
