// tests/e2e/launch_env_test.cpp: launch.env reaches ranks, and its secrets reach no file.
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>

#include "tests/e2e/node_run.h"

namespace weft::testing {
namespace {

// NUL-separated NAME=VALUE of a process, as it was started.
std::string environment_of(pid_t pid) { return slurp("/proc/" + std::to_string(pid) + "/environ"); }

TEST(LaunchEnv, RanksInheritItAndSecretsAreHidden) {
  const TinyRun run;
  std::ofstream(run.file(), std::ios::app)
      << "  env: {SOME_FLAG: \"a b\", HF_TOKEN: s3cr3t-value, my_api_key: s3cr3t-too}\n";
  Program program(run.words("train", {"train.steps=100000", "parallel.dp=2"}));
  ASSERT_TRUE(program.wait_until([&] { return num_steps(run, "tiny") > 4; }));
  for (const pid_t rank : children_of(program.pid())) {
    const std::string env = environment_of(rank);
    for (const char* part : {"SOME_FLAG=a b", "HF_TOKEN=s3cr3t-value", "my_api_key=s3cr3t-too"})
      EXPECT_TRUE(contains(env, std::string(part) + '\0')) << part;
  }
  program.send(SIGTERM);
  const Ended ended = program.wait();
  EXPECT_EQ(ended.exit_code, 143) << ended.err;
  EXPECT_FALSE(contains(ended.err + ended.out, "s3cr3t"));
  expect_parts(slurp(run.dir() / "run.yaml"), {"HF_TOKEN: \"<hidden>\"", "SOME_FLAG: \"a b\""});
  for (const auto& [name, bytes] : bytes_below(run.dir()))
    EXPECT_FALSE(contains(bytes, "s3cr3t")) << name;
  // What was stored is no run file for that, and says so.
  const Ended stored = run_to_end({"train", (run.dir() / "run.yaml").string()});
  EXPECT_EQ(stored.exit_code, 2);
  expect_parts(stored.err, {"launch.env: the value of HF_TOKEN was hidden", "leave it out"});
}

// What is read before main, as by the loader, is in force there too. Ranks set secrets themselves:
// the agent, which has neither, would get them over a network in clear.
TEST(LaunchEnv, RanksOfAnotherNodeStartWithAllButSecrets) {
  const TinyRun run;
  std::ofstream(run.file(), std::ios::app)
      << "  env: {SOME_FLAG: \"a b\", HF_TOKEN: s3cr3t-value}\n";
  NodeRun nodes(run, "nodes", {"train.steps=100000", "parallel.dp=2"});
  nodes.join();
  ASSERT_TRUE(nodes.train().wait_until([&] { return num_steps(run, "nodes") > 2; }));
  const std::vector<pid_t> ranks = nodes.ranks_of(1);
  ASSERT_EQ(ranks.size(), 1u);
  const std::string flag = std::string("SOME_FLAG=a b") + '\0';
  EXPECT_TRUE(contains(environment_of(ranks[0]), flag));
  EXPECT_FALSE(contains(environment_of(ranks[0]), "s3cr3t"));
  EXPECT_FALSE(contains(environment_of(nodes.agent().pid()), flag));
}

TEST(LaunchEnv, NamesAreChecked) {
  const TinyRun run;
  const Ended ended = run.train({"launch.env={\"a=b\": x, WEFT_RANK: 3, 7up: y, FINE_1: z}"});
  EXPECT_EQ(ended.exit_code, 2);
  expect_parts(ended.err, {"the name \"a=b\", wanted letters", "the name \"7up\"",
                           "has WEFT_RANK, which is internal to weft"});
  EXPECT_FALSE(contains(ended.err, "FINE_1"));
  // weft's own variables count as if they had been set outside.
  expect_parts(run.train({"launch.env={WEFT_CPU_LEVEL: fast}"}).err, {"WEFT_CPU_LEVEL", "fast"});
}

}  // namespace
}  // namespace weft::testing
