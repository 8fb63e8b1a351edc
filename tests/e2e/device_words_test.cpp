// tests/e2e/device_words_test.cpp: messages about the device, and about too little memory there.
#include <gtest/gtest.h>

#include "base/file.h"
#include "tests/e2e/tiny_run.h"

namespace weft::testing {
namespace {

// On the terminal after the keys, and in the run's log: each once.
void expect_after_keys(const TinyRun& run, const Ended& ended, const std::string& line) {
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const std::string log = read_file(run.dir() / "log/rank-00000.log");
  for (const std::string& text : {ended.err, log}) {
    const size_t at = text.find(line), keys = text.find("global_batch: ");
    ASSERT_NE(at, std::string::npos) << line << " in:\n" << text;
    ASSERT_NE(keys, std::string::npos) << text;
    EXPECT_GT(at, keys) << text;
    EXPECT_EQ(text.find(line, at + 1), std::string::npos) << text;
  }
  EXPECT_NE(ended.err.find("warning: " + line), std::string::npos) << ended.err;
}

TEST(DeviceWords, Tf32WithoutEffectIsInTheLog) {
  const TinyRun run;
  const Ended ended = run.train({"train.tf32=true", "launch.device=cpu"});
  expect_after_keys(run, ended, "train.tf32 has no effect on the CPU");
}

TEST(DeviceWords, IpcWithoutEffectIsReported) {
  const TinyRun run;
  const StartOptions ipc{.env = {{"WEFT_COMM", "cuda_ipc"}}};
  const std::string line = "WEFT_COMM=cuda_ipc has no effect on the CPU";
  const std::vector<std::string> sets = {"launch.device=cpu", "parallel.dp=2"};
  expect_after_keys(run, run_to_end(run.words("train", sets), ipc), line);
  const Ended planned = run_to_end(run.words("plan", sets), ipc);
  EXPECT_EQ(planned.exit_code, 0);
  expect_parts(planned.err, {"warning: " + line});
  EXPECT_EQ(run_to_end(run.words("plan", sets)).err, "");
}

TEST(DeviceWords, NcclIsChosenAutomatically) {
  const TinyRun run;
  const Ended ended =
      run_to_end(run.words("train", {}), StartOptions{.env = {{"WEFT_COMM", "nccl"}}});
  EXPECT_EQ(ended.exit_code, 2);
  expect_parts(ended.err,
               {"WEFT_COMM=nccl", "NCCL is used automatically where each rank has a GPU"});
}

// Only weft eval's hint names the command line.
TEST(DeviceWords, Fp16OfAnEvaluation) {
  const TinyRun run;
  run.train_well({"launch.device=cpu"});
  const std::vector<std::string> sets = {"train.precision=fp16", "launch.device=cpu"};
  std::vector<std::string> eval_sets = sets;
  eval_sets.push_back("data.eval=" + (run / "eval.txt").string());
  const Ended eval = run_to_end(run.words("eval", eval_sets));
  EXPECT_EQ(eval.exit_code, 2);
  expect_parts(eval.err, {"launch.device is cpu", "--set train.precision=fp32"});
  for (const char* command : {"train", "plan"}) {
    const Ended ended = run_to_end(run.words(command, sets));
    expect_parts(ended.err, {"launch.device is cpu", "set "});
    EXPECT_EQ(ended.err.find("--set"), std::string::npos) << ended.err;
  }
}

// auto on a CPU trains what fp32 trains, is stored as chosen, and may be named when the run
// resumes.
TEST(DeviceWords, PrecisionAutoIsChosenAndShown) {
  const TinyRun run;
  const std::vector<std::string> chosen = {"launch.device=cpu", "train.precision=auto"};
  const Ended ended = run.train(chosen);
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  expect_parts(ended.err, {"  precision: fp32  # auto\n"});
  expect_parts(read_file(run.dir() / "run.yaml"), {"  precision: fp32  # auto\n"});
  run.train_well({"launch.device=cpu", "name=named"});
  EXPECT_EQ(hash_of(run.checkpoint(6)), hash_of(run.checkpoint(6, "named")));
  run.train_well({"launch.device=cpu", "train.steps=7"});
  run.train_well({"launch.device=cpu", "train.steps=8", "train.precision=auto"});
  const Ended planned = run_to_end(run.words("plan", chosen));
  EXPECT_EQ(planned.exit_code, 0);
  expect_parts(planned.err, {"train.precision: auto is fp32 on the CPU"});
  const Ended verified = run_to_end(
      run.words("verify", chosen, {"--layouts", "dp=1; dp=2", "--out", (run / "v").string()}));
  EXPECT_EQ(verified.exit_code, 0) << verified.err;
  expect_parts(verified.out, {"fp32"});
}

}  // namespace
}  // namespace weft::testing
