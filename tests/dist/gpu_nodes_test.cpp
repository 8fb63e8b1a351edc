// tests/dist/gpu_nodes_test.cpp: two nodes of two ranks with a fake GPU each, all of them processes
// of this machine; sums inside a node and across go through a fake NCCL.
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "checkpoint/compare.h"
#include "checkpoint/logical.h"
#include "net/secret.h"
#include "tests/dist/gpu_trainer.h"
#include "tests/launch/spawn.h"

namespace weft::testing {
namespace {

int count(const std::string& text, const std::string& words) {
  int found = 0;
  for (size_t at = text.find(words); at != std::string::npos; at = text.find(words, at + 1))
    ++found;
  return found;
}

// The exit code; -N: signal N; 999: it still ran, and was killed.
int wait_for(pid_t pid) {
  for (int i = 0; i < 60'000; ++i) {
    int status = 0;
    if (::waitpid(pid, &status, WNOHANG) == pid)
      return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
  return 999;
}

std::string read_endpoint(const std::filesystem::path& folder) {
  for (int i = 0; i < 20'000; ++i) {
    const std::string text = text_of(folder / "endpoint");
    if (!text.empty() && text.back() == '\n') return text.substr(0, text.size() - 1);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return "127.0.0.1:1";
}

// kill: the rank and the call of its device at which it is killed.
void train_on_nodes(const GpuTrainer& trainer, Sets sets, const std::string& kill) {
  const std::filesystem::path folder = trainer.dir().parent_path().parent_path();
  const std::filesystem::path secret = folder / "secret", errors = folder / "errors";
  Secret::random().write_new_file(secret);
  const auto prepare = [&] {
    ::setenv("WEFT_NODES_ON_LO", "1", 1);
    ::setenv("NCCL_FOLDER", folder.c_str(), 1);
    ::setenv("SECRET_FILE", secret.c_str(), 1);
    ::setenv("KILL", kill.c_str(), 1);
  };
  Sets words = {WEFT_GPU_RANK_PROGRAM, (folder / "run.yaml").string()};
  words.insert(words.end(), sets.begin(), sets.end());
  words.insert(words.end(), {"launch.nodes=2", "launch.hang_timeout_s=20"});
  const pid_t train = spawn(words, errors, errors, prepare);
  const pid_t agent = spawn({WEFT_GPU_RANK_PROGRAM, "agent", "--join", read_endpoint(folder),
                             "--secret-file", secret.string()},
                            folder / "agent", folder / "agent", prepare);
  EXPECT_EQ(wait_for(train), 0) << text_of(errors);
  EXPECT_EQ(wait_for(agent), 0) << text_of(folder / "agent");
}

constexpr int64_t kNodesSteps = 4;

// Four ranks of one machine as threads, over the fake NCCL for these, which adds in the same order.
// Returns how many calls a rank's device gets.
int64_t train_calmly(const GpuTrainer& calm, const Sets& sets) {
  CallCounts calls;
  const auto ends = calm.train(GpuKind::kNcclOnCpu, sets, [&](int rank, FakeDevice& device) {
    if (rank == 1) device.count_calls_in(&calls);
  });
  for (const RankEnd& end : ends) EXPECT_EQ(end.exit_code, 0) << end.message;
  EXPECT_EQ(std::ssize(calm.metrics("loss")), kNodesSteps);
  return calls.of_all();
}

void expect_same_run(const GpuTrainer& calm, const GpuTrainer& nodes) {
  for (const char* key : {"step", "loss", "grad_norm", "lr", "tokens"})
    EXPECT_EQ(nodes.metrics(key), calm.metrics(key)) << key;
  const Comparison c = compare_models(open_logical(calm.checkpoint(kNodesSteps).string()),
                                      open_logical(nodes.checkpoint(kNodesSteps).string()));
  EXPECT_TRUE(c.states_compared);
  EXPECT_TRUE(c.differences.empty());
}

struct NodesCase {
  const char* name;
  Sets sets;
  int victim;
};

class GpuNodes : public ::testing::TestWithParam<NodesCase> {};

// With FULL any rank, and none.
TEST_P(GpuNodes, AKilledRankOfEitherNodeChangesNothing) {
  Sets sets = GetParam().sets;
  sets.insert(sets.end(), {"data.seq_length=8", "train.global_batch=4", "train.micro_batch=1",
                           fmt::format("train.steps={}", kNodesSteps)});
  const GpuTrainer calm;
  const int64_t calls = train_calmly(calm, sets);
  ASSERT_GT(calls, 50);
  for (int victim = -1; victim < 4; ++victim) {
    if (victim != GetParam().victim && std::getenv("FULL") == nullptr) continue;
    const GpuTrainer nodes;
    const std::string kill = fmt::format("{} {}", victim, calls * 2 / 3);
    train_on_nodes(nodes, sets, kill);
    const std::string events = text_of(nodes.dir() / "events.jsonl");
    const int num_deaths = victim >= 0 ? 1 : 0;
    EXPECT_EQ(count(events, "\"rank_died\""), num_deaths) << kill << events;
    EXPECT_EQ(count(events, "\"recovered\""), num_deaths) << kill << events;
    EXPECT_EQ(count(events, "\"started\""), 1) << kill << ": storage was read" << events;
    expect_same_run(calm, nodes);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, GpuNodes,
    ::testing::Values(
        // Sums of tensor-parallel groups inside a node, of data-parallel ones across.
        NodesCase{"Mesh", {"parallel.dp=2", "parallel.tp=2"}, 2},
        NodesCase{
            "Zero3Exact", {"parallel.dp=4", "parallel.shard=zero3", "parallel.mode=exact"}, 1}),
    [](const auto& p) { return std::string(p.param.name); });

}  // namespace
}  // namespace weft::testing
