// tests/planning/cluster_test.cpp: cluster files: the examples, and what is refused.
#include "planning/cluster.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "planning/node_cost.h"
#include "tests/expect_part.h"
#include "tests/io/temporary_folder.h"

namespace weft {
namespace {

constexpr const char* kSmall = R"(nodes: 1
devices_per_node: 1
device: {peak_tflops: 100, copy_gb_per_s: 1000, tflops_bf16: [50]}
)";

std::string refused(const std::string& text) {
  return testing::error_of<UserError>([&] { parse_cluster(text, "c.yaml"); });
}

TEST(ClusterFile, ExamplesAreRead) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator("examples/clusters")) {
    if (entry.path().extension() != ".yaml") continue;
    const Cluster c = read_cluster(entry.path());
    EXPECT_FALSE(c.name.empty()) << entry.path();
    ++files;
  }
  EXPECT_GE(files, 3);
}

TEST(ClusterFile, FewKeysAreEnough) {
  const Cluster c = parse_cluster(kSmall, "c.yaml");
  EXPECT_TRUE(c.has_gpus());
  EXPECT_EQ(c.algorithm, "auto");
  EXPECT_EQ(c.failures.node_mtbf_hours, 0);
}

TEST(ClusterFile, EveryComplaintIsShownWithItsLine) {
  const std::string text = refused("nodes: 0\nbandwidth: 5\ndevice:\n  memory_gbs: 80\n");
  testing::expect_part(text, "c.yaml:1");
  testing::expect_part(text, "unknown key bandwidth");
  testing::expect_part(text, "did you mean \"device.memory_gb\"");
  testing::expect_part(text, "devices_per_node");
  testing::expect_part(text, "device.peak_tflops");
}

TEST(ClusterFile, SpeedsMustMatchTheirSizes) {
  const auto with = [](const std::string& device) {
    return "nodes: 1\ndevices_per_node: 1\ndevice: {peak_tflops: 1, copy_gb_per_s: 1" + device +
           "}\n";
  };
  testing::expect_part(refused(with("")), "products have no speed");
  testing::expect_part(refused(with(", product_gflop: [1, 2], tflops_bf16: [5]")),
                       "device.tflops_bf16 has 1 speeds, wanted 2");
  testing::expect_part(refused(with(", tflops_fp32: [5, 6]")), "has 2 speeds, wanted 1");
  testing::expect_part(refused(with(", product_gflop: [2, 2], tflops_bf16: [5, 6]")),
                       "2 follows 2");
  testing::expect_part(refused(with(", attention_gflop: [2, 1], tflops_bf16: [5]")), "1 follows 2");
  testing::expect_part(refused(with(", tflops_bf16: [0]")), "tflops_bf16");
  testing::expect_part(refused(with(", tflops_bf16: [.inf]")), "tflops_bf16");
  testing::expect_part(refused(with(", tflops_bf16: [5], communication_share: 1.5")),
                       "communication_share");
}

TEST(ClusterFile, LinksAreNeededWhereRanksUseThem) {
  const std::string device = "device: {peak_tflops: 1, copy_gb_per_s: 1, tflops_bf16: [5]}\n";
  testing::expect_part(refused("nodes: 1\ndevices_per_node: 2\n" + device), "inside.gb_per_s");
  testing::expect_part(refused("nodes: 2\ndevices_per_node: 1\n" + device), "between.gb_per_s");
}

TEST(ClusterFile, IsBounded) {
  EXPECT_FALSE(refused(std::string(2 << 20, ' ')).empty());
  EXPECT_FALSE(refused("[1, 2").empty());
  EXPECT_FALSE(refused("nodes: 99999999999999999999\n").empty());
  EXPECT_FALSE(refused("\xff\xfe").empty());
}

TEST(NodeCosts, InterpolateOverTheLogarithm) {
  const SpeedBySize s{{1, 100}, {10, 30}};
  EXPECT_DOUBLE_EQ(s.at(0.1), 10);
  EXPECT_DOUBLE_EQ(s.at(1), 10);
  EXPECT_NEAR(s.at(10), 20, 1e-12);
  EXPECT_DOUBLE_EQ(s.at(100), 30);
  EXPECT_DOUBLE_EQ(s.at(1e6), 30);
  EXPECT_DOUBLE_EQ((SpeedBySize{{}, {7}}.at(5)), 7);
}

TEST(NodeCosts, ProductsAttentionAndBytes) {
  DeviceSpeeds d;
  d.tflops_bf16 = {100};
  d.attention_tflops_bf16 = {50};
  d.copy_gb_per_s = 1000;
  const NodeCosts costs(d, Dtype::kBf16);
  EXPECT_DOUBLE_EQ(costs.of({Cost::Unit::kProducts, 1e12, 0}).seconds, 0.01);
  EXPECT_DOUBLE_EQ(costs.of({Cost::Unit::kProducts, 1e12, 1e9}).seconds, 0.011);
  EXPECT_DOUBLE_EQ(costs.of({Cost::Unit::kAttention, 1e12, 0}).seconds, 0.02);
  EXPECT_DOUBLE_EQ(costs.of({Cost::Unit::kProducts, 0, 1e9}).seconds, 0.001);
  EXPECT_EQ(costs.of({Cost::Unit::kProducts, 0, 1e9}).kind, CostKind::kMemory);
  testing::expect_part(testing::error_of<UserError>([&] { NodeCosts(d, Dtype::kF32); }),
                       "no device.tflops_fp32");
}

}  // namespace
}  // namespace weft
