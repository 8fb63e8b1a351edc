// tests/e2e/plan_layout_test.cpp: `weft plan` of several ranks against the ranks themselves; the
// table of layouts; what is rejected.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "tests/e2e/rank_memory.h"
#include "tests/e2e/tiny_run.h"

namespace weft::testing {
namespace {

Json json_of(const TinyRun& run, const std::vector<std::string>& sets,
             std::vector<std::string> more = {}) {
  more.push_back("--json");
  const Ended ended = run_to_end(run.words("plan", sets, more));
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  return parse_json(ended.out, "plan");
}

std::vector<std::string> layout_sets(int dp, int tp, const std::string& shard) {
  return {fmt::format("parallel.dp={}", dp), fmt::format("parallel.tp={}", tp),
          "parallel.shard=" + shard};
}

void expect_arenas(const TinyRun& run, const Json& plan, int num_ranks) {
  const auto started = event_lines(run.dir(), "started");
  ASSERT_EQ(started.size(), 1u);
  EXPECT_EQ(started[0].at("arena_bytes").as_int(), plan.at("arena").as_int());
  const Json::Array& arenas = started[0].at("arenas").as_array();
  const Json::Array& planned = plan.at("per_rank").as_array();
  ASSERT_EQ(arenas.size(), static_cast<size_t>(num_ranks));
  ASSERT_EQ(planned.size(), arenas.size());
  for (size_t r = 0; r < arenas.size(); ++r) {
    int64_t sum = 0;
    for (const char* part :
         {"parameters", "gradients", "states", "activations", "communication", "other"}) {
      EXPECT_GE(planned[r].at(part).as_int(), 0) << part;
      sum += planned[r].at(part).as_int();
    }
    EXPECT_EQ(planned[r].at("rank").as_int(), static_cast<int64_t>(r));
    EXPECT_EQ(planned[r].at("total").as_int(), sum);
    EXPECT_EQ(arenas[r].as_int(), sum) << "rank " << r;
  }
}

TEST(PlanLayout, ArenasOfRanksMatchThePlan) {
  const auto exact = [](std::vector<std::string> sets) {
    sets.insert(sets.end(), "parallel.mode=exact");
    return sets;
  };
  for (const auto& sets : {layout_sets(2, 2, "zero1"), layout_sets(3, 1, "zero3"),
                           exact(layout_sets(3, 1, "none")), exact(layout_sets(3, 1, "zero1"))}) {
    const TinyRun run;
    std::vector<std::string> all = sets;
    all.insert(all.end(), {"train.steps=1", "train.global_batch=6", "train.micro_batch=1",
                           "data.eval=[" + (run / "eval.txt").string() + "]"});
    const Json plan = json_of(run, all);
    run.train_well(all);
    expect_arenas(run, plan, sets[0] == "parallel.dp=3" ? 3 : 4);
  }
}

class PlannedShard : public ::testing::TestWithParam<const char*> {
 protected:
  PlannedShard() {
    for (const auto& [key, value] : {std::pair{"hidden_size", 256},
                                     {"intermediate_size", 704},
                                     {"num_hidden_layers", 8},
                                     {"vocab_size", 2000}}) {
      run_.change_config(key, value);
    }
  }
  // The save of step 3 holds a copy while two more take turns.
  static std::vector<std::string> sets(const char* shard) {
    return with(layout_sets(4, 1, shard), {"train.steps=6", "train.micro_batch=1",
                                           "checkpoint.every=3", "launch.snapshot_every=1"});
  }
  const TinyRun run_;
};

// 6.4 M parameters over dp 4 with accumulation: arenas to the byte, memory within the larger of 5 %
// and 48 MiB, and nearly all of the arena is touched.
TEST_P(PlannedShard, MemoryOfRanksMatchesThePlan) {
  const Json plan = json_of(run_, sets(GetParam()));
  Program program(run_.words("train", sets(GetParam())));
  std::map<int, RankMemory> peaks;
  EXPECT_TRUE(program.wait_until(
      [&] {
        watch_ranks(program.pid(), &peaks);
        return !program.is_running();
      },
      120));
  const Ended ended = program.wait();
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  expect_arenas(run_, plan, 4);
  ASSERT_EQ(peaks.size(), 4u);
  const Json::Array& ranks = plan.at("per_rank").as_array();
  for (const auto& [rank, peak] : peaks) {
    const int64_t arena = ranks[static_cast<size_t>(rank)].at("total").as_int();
    const auto wanted =
        static_cast<double>(ranks[static_cast<size_t>(rank)].at("resident").as_int());
    EXPECT_LT(std::abs(static_cast<double>(peak.resident()) - wanted),
              std::max(0.05 * wanted, 48.0 * (1 << 20)))
        << "rank " << rank << ": planned " << wanted << ", was " << peak.resident();
    EXPECT_LE(peak.arena, arena + (2 << 20));
    EXPECT_GT(static_cast<double>(peak.arena), 0.8 * static_cast<double>(arena));
  }
  // The copies of the state, besides headers and texts.
  const int64_t snapshot = plan.at("snapshot").as_int();
  EXPECT_GE(peaks[0].slots, snapshot);
  EXPECT_LE(peaks[0].slots, snapshot + (512 << 10));
}

const std::vector<const char*> kShards = {"none", "zero1", "zero2", "zero3"};

TEST_P(PlannedShard, NeedsLessThanTheShardBefore) {
  const auto total = [&](const char* shard) {
    return json_of(run_, sets(shard)).at("per_rank").as_array()[0].at("total").as_int();
  };
  const auto at = std::find(kShards.begin(), kShards.end(), std::string(GetParam()));
  if (at == kShards.begin()) {
    EXPECT_GT(total(*at), 0);
  } else {
    EXPECT_LT(total(*at), total(*(at - 1)));
  }
}

INSTANTIATE_TEST_SUITE_P(Shards, PlannedShard, ::testing::ValuesIn(kShards),
                         [](const auto& p) { return std::string(p.param); });

// Qwen2-7B. Seconds are promised; the deadline is ten times that.
TEST(PlanLayout, ThousandsOfRanks) {
  const TinyRun run;
  run.write("model/config.json", R"({"architectures": ["Qwen2ForCausalLM"], "hidden_size": 3584,
      "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28,
      "num_key_value_heads": 4, "vocab_size": 152064, "tie_word_embeddings": false,
      "max_position_embeddings": 131072, "rms_norm_eps": 1e-6})");
  const auto start = std::chrono::steady_clock::now();
  for (const auto& [dp, tp] : {std::pair{512, 1}, {10000, 1}, {2500, 4}}) {
    std::vector<std::string> sets = layout_sets(dp, tp, "zero3");
    sets.push_back(fmt::format("train.global_batch={}", 2 * dp));
    const Json plan = json_of(run, sets);
    const Json::Array& ranks = plan.at("per_rank").as_array();
    ASSERT_EQ(ranks.size(), static_cast<size_t>(dp * tp));
    // All shards together are all parameters plus the buckets' padding.
    double parameters = 0;
    for (const Json& rank : ranks) parameters += rank.at("parameters").as_number();
    EXPECT_NEAR(parameters / (4 * 7615616512.0), 1, 0.01);
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  EXPECT_LT(took.count(), 30);
}

// Ranks that hold copies of a key/value head form a separate group: 2 heads over 4 ranks.
TEST(PlanLayout, TheTextNamesTheRanksOfAGroup) {
  const TinyRun run;
  const Ended ended = run_to_end(run.words("plan", layout_sets(1, 4, "none")));
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  expect_parts(ended.out, {"axis   ranks    calls", " tp         2 ", " tp         4 "});
}

TEST(PlanLayout, TheLayoutsThatFit) {
  const TinyRun run;
  const Json fit = json_of(run, {}, {"--fit", "1GB", "--ranks", "4"});
  const Json::Array& rows = fit.at("layouts").as_array();
  EXPECT_EQ(rows.size(), 9u);  // dp 4 and dp 2 x tp 2 in four shards each; tp 4
  EXPECT_EQ(fit.at("recommended").as_string(), rows[0].at("layout").as_string());
  double before = 0;
  for (const Json& row : rows) {
    EXPECT_TRUE(row.at("fits").as_bool());
    EXPECT_GE(row.at("received_per_token").as_number(), 0.99 * before);
    before = row.at("received_per_token").as_number();
  }
  // Without speeds the question marks of the last column are explained.
  StartOptions nowhere;
  nowhere.env["XDG_CACHE_HOME"] = (run / "none").string();
  const Ended untimed =
      run_to_end(run.words("plan", {}, {"--fit", "1GB", "--ranks", "4"}), nowhere);
  expect_parts(untimed.out, {"?\n", "step: unknown until `weft doctor --measure`", "recommended:"});
  // A row's numbers match the plan of its layout.
  const Json plan = json_of(run, layout_sets(2, 2, "zero3"));
  for (const Json& row : rows) {
    if (row.at("layout").as_string() != "dp=2,tp=2,shard=zero3") continue;
    EXPECT_EQ(row.at("resident").as_int(), plan.at("resident").as_int());
    int64_t received = 0;
    for (const Json& item : plan.at("wire").as_array()) received += item.at("received").as_int();
    EXPECT_EQ(row.at("received").as_int(), received);
  }
}

TEST(PlanLayout, SuggestsChangesWhereNoneFits) {
  const TinyRun run;
  run.change_config("hidden_size", 256);
  run.change_config("vocab_size", 40000);
  const std::vector<std::string> sets = {"train.global_batch=64"};
  const Ended some = run_to_end(run.words("plan", sets, {"--fit", "76MB", "--ranks", "2"}));
  EXPECT_EQ(some.exit_code, 1) << some.err;
  expect_parts(some.out, {"none fits", "use ", " ranks: dp="});
  const Ended none = run_to_end(run.words("plan", {}, {"--fit", "38.1MiB", "--ranks", "4"}));
  EXPECT_EQ(none.exit_code, 1);
  expect_parts(none.out,
               {"none fits; nor does any with only another train.micro_batch, up to 16 times "
                "the ranks, bf16, bf16 without fp32 masters or shorter rows\n"});
  const Ended little = run_to_end(run.words("plan", {}, {"--fit", "1MB", "--ranks", "4"}));
  EXPECT_EQ(little.exit_code, 1);
  expect_parts(little.out, {"none fits: the program alone needs 38 MiB per rank outside the arena, "
                            "but only 977 KiB is given"});
  EXPECT_FALSE(contains(little.out, "nor does")) << little.out;
  const Ended bare = run_to_end(run.words("plan", {}, {"--fit", "16", "--ranks", "4"}));
  EXPECT_EQ(bare.exit_code, 2);
  expect_parts(bare.err, {"--fit 16", "--fit 16GiB?"});
  const Ended large = run_to_end(run.words("plan", {}, {"--fit", "20000000"}));
  EXPECT_EQ(large.exit_code, 2);
  expect_parts(large.err, {"--fit 20000000B?"});
  const Ended empty = run_to_end(run.words("plan", {}, {"--fit", ""}));
  EXPECT_EQ(empty.exit_code, 2) << empty.out;
  expect_parts(empty.err, {"--fit \"\": wanted a number and its unit"});
  // Neither dp 3 (8 rows) nor tp 3 (4 heads).
  const Ended odd = run_to_end(run.words("plan", {}, {"--fit", "1GB", "--ranks", "3"}));
  EXPECT_EQ(odd.exit_code, 1);
  expect_parts(odd.out,
               {"global_batch 8", "parallel.tp=3", "admissible values of parallel.tp: 1, 2",
                "no layout has 3 ranks, whatever the memory",
                "nearest numbers of ranks that have one: 2, 4\n"});
  EXPECT_FALSE(contains(odd.out, "none fits")) << odd.out;
  const Ended wrong = run_to_end(run.words("plan", {}, {"--fit", "much"}));
  EXPECT_EQ(wrong.exit_code, 2);
  expect_parts(wrong.err, {"--fit \"much\"", "5GB"});
}

// 8 rows and tp up to 4: 1, 2, 4, 8, 16 and 32 ranks.
TEST(PlanLayout, NamesTheNearestNumbersOfRanks) {
  const TinyRun run;
  const auto nearest = [&](const char* ranks, const std::vector<std::string>& sets) {
    const Ended ended =
        run_to_end(run.words("plan", sets, {"--fit", "1GB", "--ranks", ranks, "--json"}));
    EXPECT_EQ(ended.exit_code, 1) << ended.err;
    std::vector<int64_t> numbers;
    const Json found = parse_json(ended.out, "plan");
    for (const Json& n : found.at("nearest_ranks").as_array()) numbers.push_back(n.as_int());
    EXPECT_TRUE(found.at("advice").as_array().empty());
    return numbers;
  };
  using Numbers = std::vector<int64_t>;
  EXPECT_EQ(nearest("7", {}), (Numbers{4, 8}));
  EXPECT_EQ(nearest("12", {}), (Numbers{8, 16}));
  EXPECT_EQ(nearest("1000", {}), (Numbers{32}));
  // Exact mode: exact_tp is 2, so that tp 4 is out.
  EXPECT_EQ(nearest("32", {"parallel.mode=exact"}), (Numbers{16}));
  EXPECT_EQ(nearest("64", {"parallel.mode=exact", "parallel.exact_tp=4"}), (Numbers{32}));
}

TEST(PlanLayout, RejectsWhatCannotBeCut) {
  const TinyRun run;
  const auto refused = [&](const std::vector<std::string>& sets,
                           const std::vector<std::string>& parts) {
    for (const char* command : {"plan", "train"}) {
      const Ended ended = run_to_end(run.words(command, sets));
      EXPECT_EQ(ended.exit_code, 2) << command << " " << sets[0];
      expect_parts(ended.err, parts);
    }
  };
  refused({"parallel.tp=3"}, {"parallel.tp=3", "1, 2, 4"});
  refused({"parallel.dp=3"}, {"global_batch 8", "parallel.dp 3", "1, 2, 4, 8"});
  refused({"parallel.dp=2", "train.micro_batch=3"}, {"micro_batch 3", "1, 2, 4"});
  refused({"parallel.dp=2", "parallel.tp=2", "launch.ranks_per_node=3"},
          {"needs 4 ranks", "launch.ranks_per_node is 3", "set it to 4"});
  refused({"parallel.dp=2", "data.seq_length=65"}, {"seq_length is 65", "64 positions"});
  refused({"parallel.mode=exact", "parallel.tp=4"}, {"exact_tp=2", "1, 2", "exact_tp=4"});
  refused({"parallel.mode=exact", "parallel.exact_tp=8"}, {"exact_tp=8", "1, 2, 4"});
  refused({"parallel.mode=exact", "train.tf32=true"}, {"train.tf32", "parallel.mode: exact"});
  refused({"parallel.mode=exact", "parallel.dp=4", "parallel.exact_rows=4", "train.micro_batch=4"},
          {"parallel.dp 4 x exact_rows 4", "parallel.dp to one of 1, 2"});
}

TEST(PlanLayout, ReportsKeysWithoutEffect) {
  const TinyRun run;
  const Ended ended =
      run_to_end(run.words("plan", {"parallel.shard=zero3", "train.loss_scale=1024"}));
  EXPECT_EQ(ended.exit_code, 0);
  const std::string shard = "parallel.shard: zero3 has no effect with parallel.dp 1";
  expect_parts(ended.out,
               {shard + "\n", "train.loss_scale: 1024 has no effect with train.precision fp32"});
  const Json json = json_of(run, {"parallel.shard=zero3", "launch.device=cpu"});
  EXPECT_EQ(json.at("notes").as_array().at(0).as_string(), shard);
  EXPECT_EQ(json.at("device").as_string(), "cpu");
}

// Without a GPU too, where the program was built with CUDA.
TEST(PlanLayout, PlansARunOnAGpuWhereTheBuildHasCuda) {
  const TinyRun run;
  const Ended version = run_to_end({"--version"});
  for (const std::vector<std::string>& more : {{}, std::vector<std::string>{"--fit", "4GiB"}}) {
    const Ended ended = run_to_end(run.words("plan", {"launch.device=cuda"}, more));
    if (contains(version.out, " cuda,")) {
      EXPECT_EQ(ended.exit_code, 0) << ended.err;
      expect_parts(ended.out, {"1 rank with a GPU"});
      const Json alone = json_of(run, {"launch.device=cuda"});
      const Json two = json_of(run, {"launch.device=cuda", "parallel.dp=2"});
      EXPECT_GT(two.at("snapshot").as_int(), alone.at("snapshot").as_int());  // its slots
    } else {
      EXPECT_EQ(ended.exit_code, 2) << ended.out;
      expect_parts(ended.err, {"which this build does not have",
                               "weft plan --set launch.device=cuda needs no GPU"});
    }
  }
}

TEST(PlanLayout, ReportsThatTf32HasNoEffectOnTheCpu) {
  const TinyRun run;
  const std::vector<std::string> sets = {"train.tf32=true", "launch.device=cpu"};
  const Ended planned = run_to_end(run.words("plan", sets));
  EXPECT_EQ(planned.exit_code, 0);
  expect_parts(planned.out, {"train.tf32 has no effect on the CPU"});
  const Ended trained = run.train(sets);
  EXPECT_EQ(trained.exit_code, 0);
  expect_parts(trained.err, {"warning: train.tf32 has no effect on the CPU"});
  const Ended without = run.train({"train.tf32=false"});
  EXPECT_EQ(without.exit_code, 2);
  expect_parts(without.err, {"train.tf32: true -> false"});
}

}  // namespace
}  // namespace weft::testing
