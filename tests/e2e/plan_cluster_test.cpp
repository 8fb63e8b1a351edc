// tests/e2e/plan_cluster_test.cpp: `weft plan --cluster` as a user starts it.
#include <gtest/gtest.h>

#include "tests/e2e/tiny_run.h"

namespace weft::testing {
namespace {

const std::string kCores = "examples/clusters/2-cores.yaml";
const std::string kMany = "examples/clusters/10000-h100.yaml";

TEST(PlanCluster, ReportsOneAndManyRanks) {
  const TinyRun run;
  const Ended one = run_to_end(run.words("plan", {}, {"--cluster", kCores}));
  EXPECT_EQ(one.exit_code, 0) << one.err;
  expect_parts(one.out, {"1 node of 1 rank", "expected step", "MFU", "exposed communication 0.0 %",
                         "failures: none"});
  const Ended many = run_to_end(run.words("plan",
                                          {"parallel.dp=512", "train.global_batch=1024",
                                           "parallel.shard=zero3", "train.precision=auto"},
                                          {"--cluster", kMany, "--json"}));
  ASSERT_EQ(many.exit_code, 0) << many.err;
  const Json plan = parse_json(many.out, "plan");
  EXPECT_EQ(plan.at("ranks").as_int(), 512);
  EXPECT_EQ(plan.at("nodes").as_int(), 64);
  EXPECT_GT(plan.at("step_ms").as_number(), 0);
  EXPECT_GT(plan.at("exposed_ms").as_number(), 0);
  EXPECT_GT(plan.at("from_memory").at("goodput").as_number(),
            plan.at("from_storage").at("goodput").as_number());
  double sum = 0;
  for (const char* part : {"products", "attention", "memory", "between", "in_line", "waiting"})
    sum += plan.at("parts_ms").at(part).as_number();
  EXPECT_NEAR(sum, plan.at("step_ms").as_number(), 1e-6 * sum);
}

TEST(PlanCluster, RefusesBadInput) {
  const TinyRun run;
  run.write("bad.yaml", "nodes: 1\nspeed: 3\n");
  run.write("zero.yaml", "nodes: 0\n");
  const auto refused = [&](const std::vector<std::string>& sets, const std::string& file,
                           const std::vector<std::string>& parts) {
    const Ended ended = run_to_end(run.words("plan", sets, {"--cluster", file}));
    EXPECT_EQ(ended.exit_code, 2) << ended.err;
    expect_parts(ended.err, parts);
  };
  refused({}, (run / "bad.yaml").string(), {"bad.yaml:2: unknown key speed", "devices_per_node"});
  refused({}, (run / "none.yaml").string(), {"none.yaml"});
  refused({}, kMany, {"the run computes in fp32", "device.tflops_fp32", "train.precision"});
  refused({"parallel.dp=4"}, kCores, {"needs 4 ranks, but the cluster has 1 node x 2 devices"});
  const Ended zero = run_to_end(run.words("plan", {}, {"--cluster", (run / "zero.yaml").string()}));
  EXPECT_EQ(zero.exit_code, 2);
  expect_parts(zero.err, {"zero.yaml:1: nodes is 0", "devices_per_node must be given"});
  EXPECT_EQ(zero.err.find("nodes must be given"), std::string::npos) << zero.err;
  const Ended both = run_to_end(run.words("plan", {}, {"--cluster", kCores, "--dump"}));
  EXPECT_EQ(both.exit_code, 2);
}

}  // namespace
}  // namespace weft::testing
