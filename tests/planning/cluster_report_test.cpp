// tests/planning/cluster_report_test.cpp: whole steps on clusters on paper, against bounds, against
// the estimate for one GPU, and against measured steps.
#include "planning/cluster_report.h"

#include <gtest/gtest.h>

#include <chrono>

#include "exec/loss_sums.h"
#include "exec/wire.h"
#include "planning/gpu_speeds.h"
#include "planning/rank_plans.h"
#include "tests/golden_file.h"

namespace weft {
namespace {

std::unique_ptr<Model> model(const char* config) {
  return make_model(parse_json(config, "config"), {});
}

std::unique_ptr<Model> half_a_billion() {
  return model(R"({"architectures": ["Qwen2ForCausalLM"], "hidden_size": 896,
      "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14,
      "num_key_value_heads": 2, "vocab_size": 151936, "tie_word_embeddings": true})");
}

std::unique_ptr<Model> eight_billion() {
  return model(R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 4096,
      "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
      "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 131072})");
}

RunConfig run(int64_t dp, int64_t tp, const char* shard, int64_t rows, int64_t length) {
  RunConfig c;
  c.data.seq_length = length;
  c.train.precision = "bf16";
  c.train.master_weights = false;
  c.parallel.dp = dp;
  c.parallel.tp = tp;
  c.parallel.shard = shard;
  c.train.micro_batch = rows;
  c.train.global_batch = rows * dp;
  return c;
}

// An H200's speeds of tests/planning/gpu_speeds_test.cpp.
Cluster one_h200() {
  Cluster c;
  c.device.peak_tflops = 989;
  c.device.tflops_bf16 = {671};
  c.device.attention_tflops_bf16 = {192};
  c.device.copy_gb_per_s = 4189;
  return c;
}

Cluster example(const char* name) { return read_cluster(std::string("examples/clusters/") + name); }

TEST(ClusterReport, AloneItIsTheEstimateOfOneGpu) {
  const RunConfig c = run(1, 1, "none", 8, 1024);
  const auto m = half_a_billion();
  const auto plans = make_engine_plans(c, *m, Layout{}, 0, cpu_kernels(), 1);
  GpuSpeeds s;
  s.tflops_bf16 = 671;
  s.tflops_attention_bf16 = 192;
  s.copy_gb_per_s = 4189;
  const ClusterReport r = plan_cluster(c, *m, one_h200());
  EXPECT_NEAR(r.times.step * 1e3 / estimate_gpu_ms(plans->train, s), 1, 0.02);
  EXPECT_EQ(r.times.exposed(), 0);
  EXPECT_TRUE(r.collectives.empty());
}

// benchmarks/results: Qwen2.5-0.5B 8 x 1024 in 53 ms and Qwen2-7B 4 x 2048 in 606 ms on an H200,
// with the speeds by size that were measured there.
TEST(ClusterReport, PredictsMeasuredStepsOfAGpu) {
  Cluster c = example("8-h100.yaml");
  c.device.copy_gb_per_s = 4267;
  EXPECT_NEAR(plan_cluster(run(1, 1, "none", 8, 1024), *half_a_billion(), c).times.step, 0.053,
              0.053 * 0.15);
  const auto seven = model(R"({"architectures": ["Qwen2ForCausalLM"], "hidden_size": 3584,
      "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28,
      "num_key_value_heads": 4, "vocab_size": 152064, "tie_word_embeddings": false})");
  EXPECT_NEAR(plan_cluster(run(1, 1, "none", 4, 2048), *seven, c).times.step, 0.606, 0.606 * 0.15);
}

// benchmarks/results/mesh-*: model S in steps of 8 x 256 on two cores, by the clock. Four ranks
// share the cores of two.
TEST(ClusterReport, PredictsMeasuredStepsOfACpu) {
  const auto m = model(R"({"architectures": ["Qwen2ForCausalLM"], "hidden_size": 512,
      "intermediate_size": 1408, "num_hidden_layers": 8, "num_attention_heads": 8,
      "num_key_value_heads": 2, "vocab_size": 16384, "tie_word_embeddings": true})");
  struct Measured {
    int64_t dp, tp;
    const char* shard;
    double fp32_s, bf16_s;
  };
  for (const Measured& step : {Measured{2, 1, "none", 2.933, 0.991},
                               {2, 1, "zero3", 2.980, 0.987},
                               {1, 2, "none", 2.995, 0.969},
                               {4, 1, "none", 2.991, 1.067},
                               {4, 1, "zero3", 3.027, 1.023},
                               {2, 2, "none", 3.005, 1.024}}) {
    for (const char* precision : {"fp32", "bf16"}) {
      const auto cores = static_cast<double>(step.dp * step.tp) / 2;
      Cluster c = example("2-cores.yaml");
      c.devices_per_node = step.dp * step.tp;
      for (auto* speeds : {&c.device.tflops_fp32, &c.device.tflops_bf16,
                           &c.device.attention_tflops_fp32, &c.device.attention_tflops_bf16})
        speeds->front() /= cores;
      c.device.copy_gb_per_s /= cores;
      c.inside.gb_per_s /= cores;
      RunConfig r = run(step.dp, step.tp, step.shard, 8 / step.dp, 256);
      r.train.precision = precision;
      const double wanted = r.train.precision == "fp32" ? step.fp32_s : step.bf16_s;
      EXPECT_NEAR(plan_cluster(r, *m, c).times.step / wanted, 1, 0.15)
          << precision << " dp " << step.dp << " tp " << step.tp << " " << step.shard;
    }
  }
}

// Overlap is between none and all of the communication lane, whatever the layout.
TEST(ClusterReport, TheStepLiesBetweenItsLanesAndTheirSum) {
  const auto m = half_a_billion();
  Cluster c = example("10000-h100.yaml");
  for (const auto& [dp, tp] : {std::pair{16, 1}, {8, 2}, {64, 1}}) {
    for (const char* shard : {"none", "zero1", "zero2", "zero3"}) {
      for (const double share : {0.0, 0.3, 1.0}) {
        c.device.communication_share = share;
        const StepTimes t = plan_cluster(run(dp, tp, shard, 4, 512), *m, c).times;
        const double line = t.computing() + t.in_line;
        EXPECT_GE(t.step, std::max(line, t.lane) * (1 - 1e-12)) << shard;
        EXPECT_LE(t.step, (line + t.lane) * (1 + 1e-12)) << shard;
        EXPECT_GT(t.lane, 0) << shard;
        if (share < 1) continue;
        EXPECT_NEAR(t.step, line + t.lane, 1e-9) << shard;
      }
    }
  }
}

TEST(ClusterReport, FasterLinksExposeLess) {
  const auto m = half_a_billion();
  const RunConfig c = run(64, 1, "zero3", 2, 512);
  double before = 1e9;
  for (const double speed : {5.0, 20.0, 100.0, 300.0}) {
    Cluster cluster = example("10000-h100.yaml");
    cluster.between.gb_per_s = speed;
    const double exposed = plan_cluster(c, *m, cluster).times.exposed();
    EXPECT_LT(exposed, before);
    before = exposed;
  }
}

// The bytes are those of `weft plan`, and every pass counts.
TEST(ClusterReport, CountsTheCollectivesOfTheWire) {
  const auto m = half_a_billion();
  RunConfig c = run(4, 2, "zero3", 2, 256);
  c.train.global_batch *= 3;
  const ClusterReport r = plan_cluster(c, *m, example("8-h100.yaml"));
  const auto plans = make_engine_plans(c, *m, r.layout, 0, cpu_kernels(), 1);
  std::vector<WireItem> wire = wire_of(plans->train);
  add_wire(&wire, {CommOp::kAllReduce, Axis::kData, 4, 1, kLossNumbers * int64_t{8}});
  int64_t planned = 0, simulated = 0;
  for (const WireItem& item : wire) planned += item.bytes;
  for (const CollectiveTime& item : r.collectives) simulated += item.item.bytes;
  EXPECT_EQ(simulated, planned);
  EXPECT_EQ(r.num_passes, 3);
}

TEST(ClusterReport, TenThousandRanksAreFastToPlan) {
  const auto begin = std::chrono::steady_clock::now();
  const ClusterReport r =
      plan_cluster(run(1250, 8, "zero3", 1, 8192), *eight_billion(), example("10000-h100.yaml"));
  const double took =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  EXPECT_LT(took, 10);  // ten times the promise
  EXPECT_EQ(r.nodes(), 1250);
  EXPECT_GT(r.mfu(), 0.05);
  EXPECT_LT(r.mfu(), 0.67);  // what products alone would reach
  ASSERT_TRUE(r.from_memory);
  EXPECT_GT(r.from_memory->goodput, r.from_storage.goodput);
  const ClusterReport again =
      plan_cluster(run(1250, 8, "zero3", 1, 8192), *eight_billion(), example("10000-h100.yaml"));
  EXPECT_EQ(r.to_json().dump(), again.to_json().dump());
}

TEST(ClusterReport, SavesAsTheRunFileSays) {
  const auto m = half_a_billion();
  RunConfig c = run(16, 1, "zero3", 2, 512);
  const Cluster cluster = example("10000-h100.yaml");
  EXPECT_NEAR(plan_cluster(c, *m, cluster).failures_per_s(), 2 / (6300 * 3600.0), 1e-15);
  c.checkpoint.every = 7;
  c.launch.snapshot_every = "5";
  const ClusterReport given = plan_cluster(c, *m, cluster);
  EXPECT_EQ(given.from_storage.steps, 7);
  EXPECT_EQ(given.from_memory->steps, 5);
  c.checkpoint.async = false;
  c.launch.snapshot_every = "0";
  const ClusterReport off = plan_cluster(c, *m, cluster);
  EXPECT_FALSE(off.from_memory);
  EXPECT_NEAR(off.from_storage.recovery.secure_s,
              static_cast<double>(off.checkpoint_bytes) / 1000e9, 1e-12);
}

// Snapshots cost no more than 2 % of the time, also where nodes fail all the time.
TEST(ClusterReport, SnapshotsAreAsOftenAsTheyMayCost) {
  Cluster cluster = example("8-h100.yaml");
  cluster.failures.node_mtbf_hours = 0.001;
  const ClusterReport r = plan_cluster(run(8, 1, "zero3", 1, 128), *half_a_billion(), cluster);
  const Recovery& memory = r.from_memory->recovery;
  EXPECT_LE(memory.secure_s, 0.02 * memory.interval_s * (1 + 1e-9));
  EXPECT_GT(memory.secure_s, 0.02 * (memory.interval_s - r.times.step));
}

TEST(ClusterReport, NotesWhatDoesNotFit) {
  Cluster c = example("8-h100.yaml");
  c.device.memory_gb = 1;
  const ClusterReport r = plan_cluster(run(8, 1, "zero3", 1, 128), *half_a_billion(), c);
  EXPECT_FALSE(r.fits());
  EXPECT_NE(r.to_text().find("cannot run there"), std::string::npos);
}

// Made-up numbers.
TEST(ClusterReport, MatchesTheFile) {
  ClusterReport r;
  r.cluster = one_h200();
  r.cluster.name = "paper";
  r.layout.dp = 4;
  r.layout.tp = 2;
  r.num_parameters = 1234567;
  r.tokens = 4096;
  r.ranks_per_node = 4;
  r.flops = 3e12;
  r.memory = 5 << 20;
  r.times = {0.01, 0.002, 0.003, 0.0005, 0.004, 0.001, 0.006, 0.0205};
  r.collectives = {{{CommOp::kAllReduce, Axis::kTensor, 2, 6, 1000}, 1, 0.004},
                   {{CommOp::kAllGather, Axis::kData, 4, 4, 600}, 2, 0.006}};
  r.from_storage = {{100, 2, 300}, 4878, 0.95};
  std::string text = r.to_text() + "----\n" + r.to_json().dump(2) + "\n====\n";
  r.cluster.failures.node_mtbf_hours = 1000;
  r.from_memory = SurvivalPlan{{2, 0.01, 2}, 97, 0.994};
  r.notes = {"a note"};
  text += r.to_text() + "----\n" + r.to_json().dump(2) + "\n";
  testing::expect_file("tests/planning/data/cluster_report.txt", text);
}

}  // namespace
}  // namespace weft
