// tests/planning/memory_check_test.cpp: plans against made-up machines and limits.
#include "planning/memory_check.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "config/elastic.h"
#include "planning/node_fit.h"

namespace weft {
namespace {

constexpr int64_t kGib = int64_t{1} << 30;

class MemoryCheck : public ::testing::Test {
 protected:
  MemoryCheck() {
    std::filesystem::create_directories(folder_);
    write_config(2, 2048);
    config_.model.path = folder_.string();
    config_.model.init = "random";
    config_.launch.device = "cpu";
    config_.data.seq_length = 128;
    config_.data.tokenizer = "bytes";
  }
  ~MemoryCheck() override { std::filesystem::remove_all(folder_); }

  void write_config(int layers, int inner) const {
    std::ofstream(folder_ / "config.json")
        << R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 512,
               "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 32000,
               "tie_word_embeddings": false, "num_hidden_layers": )"
        << layers << R"(, "intermediate_size": )" << inner << "}";
  }
  static MemoryBounds machine(int64_t bytes) { return {{bytes, "a made-up machine"}, {}}; }
  int64_t need() const {
    const PlanReport plan = plan_run(config_);
    return plan.resident_total() - plan.host.code;
  }
  std::string shortage(const MemoryBounds& bounds) const {
    return memory_shortage(plan_run(config_), bounds);
  }
  std::string advice(const MemoryBounds& bounds) const {
    return memory_advice(config_, plan_run(config_), bounds);
  }

  std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("weft-memory-check-" + std::to_string(::getpid()));
  RunConfig config_;
};

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)
#define EXPECT_LACKS(text, part) EXPECT_EQ((text).find(part), std::string::npos) << (text)

// Ranks of a killed run are still freeing their memory.
TEST_F(MemoryCheck, ATemporaryShortageIsIgnored) {
  const PlanReport plan = plan_run(config_);
  int measured = 0;
  const auto freeing = [&] { return machine(++measured < 3 ? need() - 1 : need()); };
  EXPECT_EQ(lasting_shortage(plan, freeing, std::chrono::seconds(60)).text, "");
  EXPECT_EQ(measured, 3);
  const auto little = [&] { return machine(need() - 1); };
  EXPECT_HAS(lasting_shortage(plan, little, std::chrono::milliseconds(60)).text, "the run needs ");
}

TEST_F(MemoryCheck, WhatFitsTheMachineIsAccepted) {
  EXPECT_EQ(shortage({}), "");
  const int64_t bytes = need();
  EXPECT_EQ(shortage(machine(bytes)), "");
  const std::string text = shortage(machine(bytes - 1));
  EXPECT_HAS(text, "the run needs ");
  EXPECT_HAS(text, "a made-up machine");
  EXPECT_HAS(text, std::to_string(bytes) + " and " + std::to_string(bytes - 1) + " bytes");
}

// All ranks are summed: they share one machine.
TEST_F(MemoryCheck, AllRanksCount) {
  const int64_t one = need();
  config_.parallel.dp = 4;
  const int64_t four = need();
  EXPECT_GT(four, 3 * one);
  const std::string text = shortage(machine(four / 2));
  EXPECT_HAS(text, "4 ranks: arenas of ");
  EXPECT_HAS(text, "supervisor");
  EXPECT_EQ(shortage(machine(four)), "");
}

TEST_F(MemoryCheck, LimitsOfAProcessCount) {
  MemoryBounds bounds = machine(100 * kGib);
  bounds.process.addresses = {kGib / 8, "ulimit -v of 0.1 GiB"};
  EXPECT_HAS(shortage(bounds), "of address space, but ulimit -v of 0.1 GiB leaves 128 MiB");
  EXPECT_HAS(advice(bounds), "raise the limit of the shell");
  bounds.process = {};
  bounds.process.data = {kGib / 8, "ulimit -d of 0.1 GiB"};
  EXPECT_HAS(shortage(bounds), "of private memory, but ulimit -d");
  // The arenas of several ranks are shared memory, which ulimit -d does not count.
  config_.parallel.dp = 2;
  EXPECT_EQ(shortage(bounds), "");
  // But each maps the other's too.
  const int64_t arena = plan_run(config_).largest_arena();
  bounds.process.addresses = {arena + arena / 2, "ulimit -v"};
  EXPECT_HAS(shortage(bounds), "of address space");
}

// Four whole copies do not fit; a sharded one does, and so does a single rank.
TEST_F(MemoryCheck, NamesALayoutThatFits) {
  const int64_t one = need();
  config_.parallel.dp = 4;
  const std::string text = advice(machine(2 * one));
  EXPECT_HAS(text, " fits: ");
  EXPECT_HAS(text, " per rank");
  EXPECT_HAS(text, "--force");
  EXPECT_LACKS(text, "no layout");
}

TEST_F(MemoryCheck, NamesChangesThatWouldHelp) {
  config_.train.micro_batch = config_.train.global_batch = 64;
  const int64_t all = need();
  config_.train.micro_batch = 1;
  const int64_t some = need();
  ASSERT_LT(some, all);
  config_.train.micro_batch = 64;
  EXPECT_HAS(advice(machine((some + all) / 2)), "set train.micro_batch: ");
}

// Nothing is planned where not even the parameters fit.
TEST_F(MemoryCheck, ReportsThatNoLayoutFits) {
  EXPECT_HAS(advice(machine(kGib / 16)), "no layout fits: ");
  EXPECT_HAS(advice(machine(kGib / 16)), "model.num_layers");
}

TEST_F(MemoryCheck, OfThisMachineIsRejectedOrForced) {
  EXPECT_NO_THROW(check_memory(config_, false));
  write_config(100, 1 << 22);  // 10 TB
  EXPECT_THROW(check_memory(config_, false), UserError);
  EXPECT_NO_THROW(check_memory(config_, true));
}

// Of an elastic run, which skips a layout that does not fit.
TEST_F(MemoryCheck, OfAnotherNumberOfNodes) {
  config_.launch.elastic = true;
  config_.launch.nodes = config_.parallel.dp = 4;
  const LayoutFit fits = fit_nodes(config_, 2, {});
  EXPECT_EQ(fits.shortage, "");
  EXPECT_TRUE(fits.arguments.empty());
  write_config(100, 1 << 22);
  EXPECT_HAS(fit_nodes(config_, 2, {}).shortage, "the run needs ");
  EXPECT_HAS(fit_nodes(config_, 2, {}).shortage, " is available: ");
  EXPECT_EQ(fit_nodes(config_, 2, {.is_forced = true}).shortage, "");
}

// Memory for the run of a node, then also for a copy of its state, then for all copies.
TEST_F(MemoryCheck, OfAnotherNumberOfNodesLeavesOutCopiesThatNobodyAskedFor) {
  config_.launch.elastic = true;
  config_.launch.nodes = config_.parallel.dp = 4;
  for (const int nodes : {2, 1}) {
    const PlanReport plan = plan_run(with_nodes(config_, nodes));
    const int64_t run = plan.resident_of_node() - plan.host.code;
    const int64_t all = plan.snapshots / nodes, one = all / (nodes > 1 ? 6 : 3);
    const auto fit = [&](int64_t bytes, NodeFitOptions o = {}) {
      o.measure = [=] { return machine(bytes); };
      return fit_nodes(config_, nodes, o);
    };
    EXPECT_TRUE(fit(run + all).has_snapshots) << nodes;
    EXPECT_EQ(fit(run + all, {.needs_snapshots = true}).shortage, "");
    EXPECT_TRUE(fit(run + all).arguments.empty());
    EXPECT_EQ(fit(run + all).warning, "");

    const LayoutFit bare = fit(run + all - 1);
    EXPECT_EQ(bare.shortage, "");
    EXPECT_FALSE(bare.has_snapshots);
    EXPECT_EQ(bare.arguments, (std::vector<std::string>{"--set", "launch.snapshot_every=0"}));
    EXPECT_HAS(bare.warning, "where a rank dies, all start from the newest checkpoint");
    const LayoutFit refused = fit(run + all - 1, {.needs_snapshots = true});
    EXPECT_HAS(refused.shortage, "(launch.snapshot_every), which need");
    EXPECT_HAS(refused.shortage, "with launch.snapshot_every: auto it does without them");

    EXPECT_EQ(fit(run + one).arguments.size(), 2u);
    const LayoutFit least = fit(run + one - 1);
    EXPECT_EQ(least.arguments, (std::vector<std::string>{"--set", "launch.snapshot_every=0",
                                                         "--set", "checkpoint.async=false"}));
    EXPECT_HAS(least.warning, "checkpoints are written between steps");
    EXPECT_HAS(fit(run + one - 1, {.needs_async = true}).shortage, "(checkpoint.async)");
    EXPECT_HAS(fit(run - 1).shortage, "the run needs ");
  }
}

// The copies that fit are counted, and no others.
TEST_F(MemoryCheck, PlannedBytesCountTheCopiesThatFit) {
  config_.parallel.dp = 2;
  const PlanReport plan = plan_run(config_);
  const int64_t run = plan.resident_of_node() - plan.host.code;
  const auto planned = [&](int64_t bytes) {
    return *check_memory(config_, false, [=] { return machine(bytes); }).planned_bytes;
  };
  EXPECT_EQ(planned(run + plan.snapshots), plan.resident_total() + plan.snapshots);
  EXPECT_EQ(planned(run + plan.snapshots - 1), plan.resident_total() + plan.snapshots / 3);
  EXPECT_EQ(planned(run), plan.resident_total());
}

}  // namespace
}  // namespace weft
