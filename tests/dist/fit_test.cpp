// tests/dist/fit_test.cpp: layouts that are compared with each other run on one kind of device.
#include <gtest/gtest.h>

#include <fstream>

#include "tests/io/temporary_folder.h"
#include "tests/kernel/emulated_cuda/table.h"
#include "tests/tiny_config.h"
#include "train/plan_fit.h"
#include "train/plan_report.h"
#include "train/room.h"

namespace weft::testing {
namespace {

// More ranks than this machine has GPUs: what `auto` says for one layout may not hold for another.
TEST(PlanFit, AllLayoutsAreOfOneKindOfDevice) {
  const TemporaryFolder folder;
  std::ofstream(folder / "config.json")
      << R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 256, "intermediate_size": 512,
             "num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 4,
             "vocab_size": 1000, "tie_word_embeddings": false})";
  RunConfig c;
  c.model.path = folder.path().string();
  c.model.init = "random";
  c.data.seq_length = 64;
  c.train.global_batch = 8;
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

}  // namespace
}  // namespace weft::testing
