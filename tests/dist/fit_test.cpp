// tests/dist/fit_test.cpp: compared layouts run on one kind of device.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "base/file.h"
#include "model/model.h"
#include "planning/backend.h"
#include "planning/gpu_memory_check.h"
#include "planning/gpu_speeds.h"
#include "planning/host_memory.h"
#include "planning/plan_fit.h"
#include "planning/plan_report.h"
#include "planning/snapshot_bytes.h"
#include "tests/io/temporary_folder.h"
#include "tests/kernel/emulated_cuda/table.h"
#include "tests/tiny_config.h"

namespace weft::testing {
namespace {

// Sets an environment variable temporarily.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    ::setenv(name, value.c_str(), 1);
  }
  ~Variable() { before_ ? ::setenv(name_, before_->c_str(), 1) : ::unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

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
  FitReport fit(int64_t memory, int64_t ranks) const {
    return fit_layouts(config_, memory, ranks, {.kernels = &emulated_kernels()});
  }
  PlanReport plan(const RunConfig& c) const {
    const auto model =
        make_model(parse_json(read_file(folder_ / "config.json", 1 << 16), "config.json"), {});
    return plan_layout(c, *model, emulated_kernels(), std::nullopt);
  }
  // What a suggested change needs; 0: it is not suggested.
  int64_t advised(const FitReport& report, const std::string& what) const {
    for (const FitChange& change : report.advice) {
      if (change.what == what) return change.row.resident;
    }
    return 0;
  }

  TemporaryFolder folder_;
  RunConfig config_;
};

// More ranks than this machine has GPUs: `auto` may choose differently for different layouts.
TEST_F(PlanFit, AllLayoutsAreOfOneKindOfDevice) {
  const RunConfig& c = config_;
  ASSERT_EQ(c.launch.device, "auto");
  // A GPU's plan includes its libraries' memory.
  const FitReport gpu = fit_layouts(c, kContextBytes, 4, {.kernels = &emulated_kernels()});
  EXPECT_TRUE(gpu.is_on_gpu);
  EXPECT_FALSE(gpu.has_fit());
  EXPECT_TRUE(gpu.advice.empty());  // no number of GPUs would help
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
  EXPECT_NE(gpu.to_text().find("step: unknown for several GPUs"), std::string::npos);
  const FitReport cpu = fit_layouts(c, kContextBytes, 4, {.kernels = &cpu_kernels()});
  EXPECT_FALSE(cpu.is_on_gpu);
  for (const FitRow& row : cpu.rows) EXPECT_LT(row.resident, kContextBytes) << row.layout();
  EXPECT_EQ(cpu.to_json().at("beside_arena").as_int(), expected_host_memory(c).of_rank());
}

// Memory besides the arena has its own line, so that the lines sum up to the expected total.
TEST(PlanReport, ReportsMemoryBesidesTheArena) {
  const auto model = make_model(parse_json(kTinyConfig, "config"), {});
  RunConfig c;
  c.data.seq_length = 64;
  for (const Kernels* kernels : {&emulated_kernels(), &cpu_kernels()}) {
    const bool is_on_gpu = kernels->device != nullptr;
    const PlanReport report = plan_layout(c, *model, *kernels, {});
    const Json json = report.to_json();
    EXPECT_EQ(json.at("beside_arena").as_int(),
              is_on_gpu ? kContextBytes : expected_host_memory(c).of_rank());
    EXPECT_EQ(json.at("arena").as_int() + json.at("beside_arena").as_int(),
              json.at("resident").as_int());
    EXPECT_NE(report.to_text().find(is_on_gpu ? "\n  context " : "\n  program "), std::string::npos)
        << report.to_text();
  }
}

// Speeds stored for a GPU; without TF32's the estimate uses fp32's, with a note.
TEST_F(PlanFit, Tf32HasItsTimeWhereItWasMeasured) {
  const Variable cache("XDG_CACHE_HOME", folder_.path().string());
  GpuSpeeds speeds;
  speeds.gpu = first_gpu();
  speeds.tflops_fp32 = speeds.tflops_bf16 = 0.01;  // so that products are most of the time
  speeds.tflops_attention_fp32 = speeds.tflops_attention_bf16 = speeds.copy_gb_per_s = 1e6;
  const auto plan = [&](double tflops_tf32, bool asks) {
    speeds.tflops_tf32 = tflops_tf32;
    save_gpu_speeds(speeds);
    RunConfig c = config_;
    c.train.tf32 = asks;
    return fit_layouts(c, 100 * kContextBytes, 1, {.kernels = &emulated_kernels()});
  };
  const FitReport fp32 = plan(0.04, false), tf32 = plan(0.04, true), old = plan(0, true);
  ASSERT_TRUE(fp32.rows[0].step_ms && tf32.rows[0].step_ms && old.rows[0].step_ms);
  EXPECT_NEAR(*tf32.rows[0].step_ms, *fp32.rows[0].step_ms / 4, 1);
  EXPECT_EQ(*old.rows[0].step_ms, *fp32.rows[0].step_ms);
  for (const FitReport* report : {&fp32, &tf32, &old}) {
    const bool is_reported = report->to_text().find(kStepOfFp32) != std::string::npos;
    EXPECT_EQ(is_reported, report == &old) << report->to_text();
  }
  config_.train.tf32 = true;
  const PlanReport one = this->plan(config_);
  EXPECT_EQ(one.step_ms, old.rows[0].step_ms);
  EXPECT_NE(one.to_text().find(kStepOfFp32), std::string::npos) << one.to_text();
  EXPECT_EQ(one.to_json().at("step_ms_note").as_string(), kStepOfFp32);
}

// least_arena bounds the arena of every layout, and the advice plans no layout that it excludes.
TEST_F(PlanFit, PlansNoLayoutWhoseWeightsAndStatesAloneDoNotFit) {
  const auto model =
      make_model(parse_json(read_file(folder_ / "config.json", 1 << 16), "config.json"), {});
  config_.train.micro_batch = 1;
  const auto expect_bound = [&](int64_t ranks, int64_t most_times) {
    for (const FitRow& row : fit(int64_t{1} << 40, ranks).rows) {
      if (!row.is_admissible) continue;
      RunConfig c = config_;
      c.parallel.dp = row.dp;
      c.parallel.tp = row.tp;
      c.parallel.shard = row.shard;
      const int64_t least = least_arena(c, *model);
      EXPECT_LE(least, row.arena) << row.layout() << " " << c.train.precision;
      EXPECT_GE(least * most_times, row.arena) << row.layout() << " " << c.train.precision;
    }
  };
  for (const char* precision : {"fp32", "bf16"}) {
    for (const bool has_masters : {true, false}) {
      config_.train.precision = precision;
      config_.train.master_weights = has_masters;
      config_.train.optimizer.name = "adamw";
      expect_bound(4, 4);
      config_.model.freeze = {"*layers*", "*embed*"};
      expect_bound(4, 20);
      config_.model.freeze.clear();
      config_.train.optimizer.name = "sgd";
      config_.parallel.mode = "exact";
      config_.train.global_batch = 6;  // dp 3 keeps no whole gradients
      expect_bound(3, 20);
      config_.parallel.mode = "fast";
      config_.train.global_batch = 8;
    }
  }
  config_.train.optimizer.name = "adamw";
  const FitReport none = fit(kContextBytes + (1 << 16), 4);
  ASSERT_FALSE(none.has_fit());
  ASSERT_FALSE(none.tried.empty());
  EXPECT_EQ(none.num_plans, static_cast<int64_t>(none.rows.size()));
}

// Fewer rows at once, as many as fit; and all rows at once, where one pass keeps no gradients and
// so needs less than several.
TEST_F(PlanFit, AdvisesMicroBatchesInBothDirections) {
  config_.train.micro_batch = 8;
  RunConfig fewer = config_;
  fewer.train.micro_batch = 2;
  const int64_t of_two = plan(fewer).resident();
  ASSERT_LT(of_two, plan(config_).resident());
  EXPECT_EQ(advised(fit(of_two, 1), "set train.micro_batch: 2"), of_two);
  EXPECT_EQ(advised(fit(of_two - 1, 1), "set train.micro_batch: 2"), 0);
  config_.train.precision = "bf16";
  config_.train.master_weights = false;
  config_.data.seq_length = 16;
  RunConfig some = config_;
  some.train.micro_batch = 2;
  const int64_t of_all = plan(config_).resident();
  ASSERT_LT(of_all, plan(some).resident());
  config_ = some;
  EXPECT_EQ(advised(fit(of_all, 1), "set train.micro_batch: 8"), of_all);
  EXPECT_EQ(advised(fit(of_all - 1, 1), "set train.micro_batch: 8"), 0);
  config_.train.master_weights = true;
  EXPECT_EQ(advised(fit(of_all, 1), "set train.master_weights: false and train.micro_batch: 8"),
            of_all);
}

TEST_F(PlanFit, AdvisesBf16WithoutMasters) {
  config_.train.precision = "bf16";
  RunConfig pure = config_;
  pure.train.master_weights = false;
  const int64_t wanted = plan(pure).resident();
  ASSERT_LT(wanted, plan(config_).resident());
  EXPECT_EQ(advised(fit(wanted, 1), "set train.master_weights: false"), wanted);
  const std::string none = fit(kContextBytes + 1, 1).to_text();
  EXPECT_TRUE(contains(none,
                       "nor does any with only another train.micro_batch, up to 16 times the "
                       "ranks, bf16 without fp32 masters or shorter rows"))
      << none;
  config_.train.precision = "fp32";
  EXPECT_EQ(advised(fit(wanted, 1), "set train.precision: bf16 and train.master_weights: false"),
            wanted);
  // Settings already in effect are not listed as unhelpful.
  config_ = pure;
  EXPECT_FALSE(contains(fit(kContextBytes + 1, 1).to_text(), "bf16"));
}

TEST_F(PlanFit, ReportsWhatLeavesNoMemoryForAnArena) {
  const FitReport less = fit(kContextBytes - 1, 1);
  const std::string why =
      "CUDA's context and libraries alone need 1.7 GiB per rank outside the arena";
  EXPECT_TRUE(contains(less.to_text(), "none fits: " + why)) << less.to_text();
  EXPECT_TRUE(contains(less.to_json().at("reason").as_string(), why));
  EXPECT_TRUE(less.tried.empty());
  const FitReport more = fit(kContextBytes + 1, 1);
  EXPECT_FALSE(contains(more.to_text(), why)) << more.to_text();
  EXPECT_TRUE(more.to_json().at("reason").is_null());
}

// The given memory is the GPU's: each rank gets its share.
TEST_F(PlanFit, RanksThatShareAGpuShareItsMemory) {
  const int64_t least = fit(kContextBytes + 1, 4).rows[0].resident;
  EXPECT_TRUE(fit(least, 4).has_fit());
  const Variable shared("WEFT_COMM", "cuda_ipc");
  const int64_t times = ranks_on_a_gpu(4, true);
  if (first_gpu().empty()) {
    ASSERT_EQ(times, 4);
  }
  EXPECT_EQ(ranks_on_a_gpu(4, false), 1);
  EXPECT_TRUE(fit(times * least, 4).has_fit());
  EXPECT_EQ(fit(times * least - 1, 4).has_fit(), false);
  const FitReport report = fit(times * least, 4);
  EXPECT_EQ(report.to_json().at("ranks_on_a_gpu").as_int(), times);
  if (times < 4) return;
  EXPECT_TRUE(contains(report.to_text(), "per GPU, 4 ranks that share a GPU (WEFT_COMM=cuda_ipc)"))
      << report.to_text();
  config_.parallel.dp = 4;
  EXPECT_TRUE(contains(plan(config_).to_text(), "4 ranks share a GPU, and need 4 x "));
}

// An area of 32 MiB for each group of more than one rank; 4 key/value heads over 8 ranks are held
// twice, which is a group too.
TEST_F(PlanFit, ExactSumsOverNcclHaveAStagingArea) {
  const auto staging = [&](int dp, int tp, const char* mode) {
    RunConfig c = config_;
    c.parallel.dp = dp;
    c.parallel.tp = tp;
    c.parallel.mode = mode;
    c.parallel.exact_tp = tp > 1 ? tp : 0;
    const PlanReport report = plan(c);
    EXPECT_EQ(report.resident(), report.largest_arena() + kContextBytes + report.staging);
    EXPECT_EQ(contains(report.to_text(), "\n  staging "), report.staging > 0);
    return report.staging >> 20;
  };
  EXPECT_EQ(staging(1, 1, "exact"), 0);
  EXPECT_EQ(staging(2, 1, "exact"), 32);
  EXPECT_EQ(staging(2, 2, "exact"), 64);
  EXPECT_EQ(staging(1, 8, "exact"), 64);
  EXPECT_EQ(staging(2, 2, "fast"), 0);
  config_.parallel.mode = "exact";
  const FitReport none = fit(kContextBytes + 1, 2);
  EXPECT_TRUE(contains(none.rows[0].reason, " + context 1.7 GiB + staging 32 MiB"))
      << none.rows[0].reason;
  const Variable shared("WEFT_COMM", "cuda_ipc");
  EXPECT_EQ(staging(2, 2, "exact"), 0);
}

TEST_F(PlanFit, TheReportNamesDeviceAndAssumptions) {
  const Variable cache("XDG_CACHE_HOME", folder_.path().string());
  config_.data.layout = "pack";
  config_.parallel.shard = "zero3";
  const PlanReport report = plan(config_);
  const std::string text = report.to_text();
  EXPECT_TRUE(contains(text.substr(0, text.find('\n')), " on 1 rank with a GPU and ")) << text;
  const Json json = report.to_json();
  EXPECT_EQ(json.at("device").as_string(), "cuda");
  const Json::Array& notes = json.at("notes").as_array();
  ASSERT_EQ(notes.size(), 3u);
  EXPECT_TRUE(contains(notes[0].as_string(), "data.layout pack"));
  EXPECT_TRUE(contains(notes[1].as_string(), "parallel.shard: zero3 has no effect"));
  EXPECT_TRUE(contains(notes[2].as_string(), "step_ms: unknown until `weft doctor --measure`"));
  EXPECT_EQ(contains(notes[2].as_string(), "on a machine with the GPU"), first_gpu().empty());
  EXPECT_TRUE(contains(fit(2 * kContextBytes, 1).to_text(), "per rank, 1 rank with a GPU\n"));
}

}  // namespace
}  // namespace weft::testing
