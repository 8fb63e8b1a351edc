// tests/dist/fit_test.cpp: layouts that are compared with each other run on one kind of device.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "base/file.h"
#include "exec/gpu_speeds.h"
#include "model/model.h"
#include "tests/io/temporary_folder.h"
#include "tests/kernel/emulated_cuda/table.h"
#include "tests/tiny_config.h"
#include "train/backend.h"
#include "train/plan_fit.h"
#include "train/plan_report.h"
#include "train/room.h"

namespace weft::testing {
namespace {

// Where speeds are kept, for a while.
class CacheFolder {
 public:
  explicit CacheFolder(const std::filesystem::path& path) {
    if (const char* before = std::getenv(kName)) before_ = before;
    ::setenv(kName, path.c_str(), 1);
  }
  ~CacheFolder() { before_ ? ::setenv(kName, before_->c_str(), 1) : ::unsetenv(kName); }
  CacheFolder(const CacheFolder&) = delete;
  CacheFolder& operator=(const CacheFolder&) = delete;

 private:
  static constexpr const char* kName = "XDG_CACHE_HOME";
  std::optional<std::string> before_;
};

class PlanFit : public ::testing::Test {
 protected:
  PlanFit() {
    std::ofstream(folder_ / "config.json")
        << R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 256, "intermediate_size": 512,
               "num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 4,
               "vocab_size": 1000, "tie_word_embeddings": false})";
    config_.model.path = folder_.path().string();
    config_.model.init = "random";
    config_.data.seq_length = 64;
    config_.train.global_batch = 8;
  }
  TemporaryFolder folder_;
  RunConfig config_;
};

// More ranks than this machine has GPUs: what `auto` says for one layout may not hold for another.
TEST_F(PlanFit, AllLayoutsAreOfOneKindOfDevice) {
  const RunConfig& c = config_;
  ASSERT_EQ(c.launch.device, "auto");
  // A GPU's plan counts what its libraries take.
  const FitReport gpu = fit_layouts(c, kContextBytes, 4, &emulated_kernels());
  EXPECT_TRUE(gpu.is_on_gpu);
  EXPECT_FALSE(gpu.has_fit());
  EXPECT_TRUE(gpu.advice.empty());  // no number of GPUs has more room than that
  int num_planned = 0;
  for (const FitRow& row : gpu.rows) {
    if (!row.is_admissible) continue;
    ++num_planned;
    EXPECT_GT(row.resident, kContextBytes) << row.layout();
    EXPECT_TRUE(row.reason.starts_with("arena ")) << row.reason;
    EXPECT_TRUE(row.reason.ends_with(" + context 1.7 GiB")) << row.reason;
    EXPECT_NE(gpu.to_text().find(row.reason), std::string::npos) << gpu.to_text();
  }
  EXPECT_EQ(gpu.to_json().at("beside_arena").as_int(), kContextBytes);
  EXPECT_NE(gpu.to_json().at("layouts").as_array()[0].find("reason"), nullptr);
  EXPECT_GE(num_planned, 8);
  EXPECT_NE(gpu.to_text().find("4 ranks with a GPU each"), std::string::npos) << gpu.to_text();
  EXPECT_NE(gpu.to_text().find("step: not known of several GPUs"), std::string::npos);
  const FitReport cpu = fit_layouts(c, kContextBytes, 4, &cpu_kernels());
  EXPECT_FALSE(cpu.is_on_gpu);
  for (const FitRow& row : cpu.rows) EXPECT_LT(row.resident, kContextBytes) << row.layout();
  EXPECT_EQ(cpu.to_json().at("beside_arena").as_int(), kProgramBytes);
}

// What stands beside the arena is a line of its own, so that the lines add up to what is expected.
TEST(PlanReport, TellsWhatStandsBesideTheArena) {
  const auto model = make_model(parse_json(kTinyConfig, "config"), {});
  RunConfig c;
  c.data.seq_length = 64;
  for (const Kernels* kernels : {&emulated_kernels(), &cpu_kernels()}) {
    const bool is_on_gpu = kernels->device != nullptr;
    const PlanReport report = plan_layout(c, *model, *kernels, {});
    const Json json = report.to_json();
    EXPECT_EQ(json.at("beside_arena").as_int(), is_on_gpu ? kContextBytes : kProgramBytes);
    EXPECT_EQ(json.at("arena").as_int() + json.at("beside_arena").as_int(),
              json.at("resident").as_int());
    EXPECT_NE(report.to_text().find(is_on_gpu ? "\n  context " : "\n  program "), std::string::npos)
        << report.to_text();
  }
}

// Speeds that were kept for a GPU; those without TF32's tell fp32's time, and say so.
TEST_F(PlanFit, Tf32HasItsTimeWhereItWasMeasured) {
  const CacheFolder cache(folder_.path());
  GpuSpeeds speeds;
  speeds.gpu = first_gpu();
  speeds.tflops_fp32 = speeds.tflops_bf16 = 0.01;  // so that products are most of the time
  speeds.tflops_attention_fp32 = speeds.tflops_attention_bf16 = speeds.copy_gb_per_s = 1e6;
  const auto plan = [&](double tflops_tf32, bool asks) {
    speeds.tflops_tf32 = tflops_tf32;
    save_gpu_speeds(speeds);
    RunConfig c = config_;
    c.train.tf32 = asks;
    return fit_layouts(c, 100 * kContextBytes, 1, &emulated_kernels());
  };
  const FitReport fp32 = plan(0.04, false), tf32 = plan(0.04, true), old = plan(0, true);
  ASSERT_TRUE(fp32.rows[0].step_ms && tf32.rows[0].step_ms && old.rows[0].step_ms);
  EXPECT_NEAR(*tf32.rows[0].step_ms, *fp32.rows[0].step_ms / 4, 1);
  EXPECT_EQ(*old.rows[0].step_ms, *fp32.rows[0].step_ms);
  for (const FitReport* report : {&fp32, &tf32, &old}) {
    const bool is_told = report->to_text().find(kStepOfFp32) != std::string::npos;
    EXPECT_EQ(is_told, report == &old) << report->to_text();
  }
  config_.train.tf32 = true;
  const auto model =
      make_model(parse_json(read_file(folder_ / "config.json", 1 << 16), "config.json"), {});
  const PlanReport one = plan_layout(config_, *model, emulated_kernels(), std::nullopt);
  EXPECT_EQ(one.step_ms, old.rows[0].step_ms);
  EXPECT_NE(one.to_text().find(kStepOfFp32), std::string::npos) << one.to_text();
  EXPECT_EQ(one.to_json().at("step_ms_note").as_string(), kStepOfFp32);
}

}  // namespace
}  // namespace weft::testing
