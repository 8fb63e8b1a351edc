// tests/e2e/stale_final_test.cpp: final/ is of the run's last step, or the run is not finished.
#include <gtest/gtest.h>

#include <csignal>

#include "tests/e2e/tiny_run.h"
#include "tests/faults/preload.h"

namespace weft::testing {
namespace {

std::string weights_of(const std::filesystem::path& path) {
  const std::string text = hash_of(path);
  const size_t at = text.find("weights ");
  return at == std::string::npos ? "none" : text.substr(at, text.find('\n', at) - at);
}

// The last checkpoint is saved before final/ is replaced: killed between the two, the run has all
// its steps and the model of its earlier end.
TEST(StaleFinal, IsReplacedWhereTheRunWasKilledBefore) {
  const TinyRun run;
  run.train_well({"train.steps=4"});
  const std::string earlier = weights_of(run.dir() / "final");
  StartOptions options;
  options.env = fault_env("open:KILL:/final.writing/");
  EXPECT_EQ(run_to_end(run.words("train", {}), options).signal, SIGKILL);
  EXPECT_TRUE(std::filesystem::exists(run.checkpoint(6)));
  EXPECT_EQ(weights_of(run.dir() / "final"), earlier);
  run.train_well();
  EXPECT_EQ(weights_of(run.dir() / "final"), weights_of(run.checkpoint(6)));
  EXPECT_NE(weights_of(run.dir() / "final"), earlier);
  EXPECT_EQ(metric_texts(run.dir(), "grad_norm").size(), 6u);
  // Now it is finished, and says so without a new start.
  const size_t starts = event_lines(run.dir(), "started").size();
  run.train_well();
  EXPECT_EQ(event_lines(run.dir(), "started").size(), starts);
}

}  // namespace
}  // namespace weft::testing
