// tests/config/device_fallback_test.cpp: the messages about a run on the CPU on each kind of
// machine.
#include "config/device_fallback.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

const GpusHere kNotBuilt{false, 0, "", false};
const GpusHere kNoDriver{true, 0, "no NVIDIA driver is loaded", false};
const GpusHere kOne{true, 1, "", false};

RunConfig run_on(const char* device, int64_t dp = 1, const char* precision = "fp32") {
  RunConfig c;
  c.launch.device = device;
  c.parallel.dp = dp;
  c.train.precision = precision;
  return c;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(OnCpu, AutoSaysWhyNoGpuIsUsed) {
  EXPECT_EQ(cpu_line(run_on("auto"), kNoDriver),
            "on the CPU: no GPU can be used: no NVIDIA driver is loaded");
  EXPECT_EQ(cpu_line(run_on("auto", 4), kOne),
            "on the CPU: 4 ranks need one GPU each, but this machine has 1");
  EXPECT_EQ(cpu_line(run_on("auto"), kNotBuilt), "");  // it has nothing else
  EXPECT_EQ(cpu_line(run_on("cpu"), kNoDriver), "");   // requested
  EXPECT_EQ(cpu_line(run_on("auto"), kOne), "");       // on the GPU
  EXPECT_EQ(cpu_line(run_on("auto", 4), GpusHere{true, 1, "", true}), "");
}

TEST(OnCpu, GpusAreUsedWhereEachRankHasOneOrMayShare) {
  EXPECT_TRUE(kOne.serve(1));
  EXPECT_FALSE(kOne.serve(2));
  EXPECT_TRUE((GpusHere{true, 1, "", true}.serve(2)));
  EXPECT_FALSE((GpusHere{true, 0, "none", true}.serve(1)));
  EXPECT_FALSE(kNotBuilt.serve(1));
}

// A hint must never lead back to the same error.
TEST(OnCpu, Fp16HintsNameWhatHelpsHere) {
  struct Case {
    const char* device;
    int64_t dp;
    const GpusHere& here;
    const char *why, *hint;
    bool names_cuda;
  };
  const Case cases[] = {
      {"cpu", 1, kOne, "use the CPU: launch.device is cpu", "set launch.device to cuda, or", true},
      {"cpu", 1, kNoDriver, "launch.device is cpu, and no GPU can be used: no NVIDIA driver",
       "weft doctor", false},
      {"auto", 1, kNoDriver, "use the CPU: no GPU can be used: no NVIDIA driver is loaded",
       "weft doctor", false},
      {"auto", 1, kNotBuilt, "use the CPU: this weft was built without CUDA", "-DWEFT_CUDA=ON",
       false},
      {"auto", 2, kOne, "2 ranks need one GPU each, but this machine has 1", "WEFT_COMM=cuda_ipc",
       false},
  };
  for (const Case& t : cases) {
    const UserError e = no_fp16_here(run_on(t.device, t.dp, "fp16"), t.here, Purpose::kTrain);
    const std::string what = e.what();
    EXPECT_TRUE(has(what, "fp16, which needs a GPU")) << what;
    EXPECT_TRUE(has(what, t.why)) << what;
    EXPECT_TRUE(has(e.hint(), t.hint)) << what << e.hint();
    EXPECT_TRUE(has(e.hint(), "train.precision to bf16 or fp32")) << e.hint();
    EXPECT_FALSE(has(e.hint(), "--set")) << e.hint();
    EXPECT_EQ(has(e.hint(), "launch.device to cuda"), t.names_cuda) << e.hint();
  }
  const UserError eval = no_fp16_here(run_on("auto", 1, "fp16"), kNoDriver, Purpose::kEval);
  EXPECT_TRUE(has(eval.hint(), "--set train.precision=fp32")) << eval.hint();
}

TEST(OnCpu, NoGpuNamesThePrecisionThatTheCpuLacks) {
  const UserError fp32 = no_gpu_here(run_on("cuda"), kNoDriver.why_none, Purpose::kTrain);
  EXPECT_STREQ(fp32.what(), "no GPU can be used: no NVIDIA driver is loaded");
  EXPECT_EQ(fp32.hint(), "set launch.device to cpu; `weft doctor` shows what is missing");
  const UserError fp16 = no_gpu_here(run_on("cuda", 1, "fp16"), "none", Purpose::kTrain);
  EXPECT_TRUE(has(fp16.hint(), "cpu and train.precision to bf16 or fp32")) << fp16.hint();
  const UserError eval = no_gpu_here(run_on("cuda", 1, "fp16"), "none", Purpose::kEval);
  EXPECT_TRUE(has(eval.hint(), "--set train.precision=fp32")) << eval.hint();
}

}  // namespace
}  // namespace weft
