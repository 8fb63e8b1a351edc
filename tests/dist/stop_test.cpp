// tests/dist/stop_test.cpp: a signal ends an evaluation in the middle of a pass, on all ranks at
// the same place.
#include <gtest/gtest.h>

#include <csignal>
#include <thread>

#include "base/error.h"
#include "tests/backends.h"
#include "tests/dist/mesh_run.h"
#include "train/engine.h"
#include "train/rank_agreement.h"

namespace weft::testing {
namespace {

constexpr int kLayers = 6;

Json model_config() {
  Json c = parse_json(R"({"architectures": ["Qwen2ForCausalLM"], "hidden_size": 32,
      "intermediate_size": 48, "num_attention_heads": 4, "num_key_value_heads": 2,
      "vocab_size": 99, "tie_word_embeddings": false})",
                      "config");
  c.set("num_hidden_layers", kLayers);
  return c;
}

RunConfig run_config(int dp, int tp, const char* mode) {
  RunConfig c;
  c.data.seq_length = 12;
  c.data.eval_fraction = 0.5;  // only: an evaluation plan is wanted
  c.train.global_batch = 8;
  c.train.micro_batch = 8 / dp;  // one pass
  c.parallel.dp = dp;
  c.parallel.tp = tp;
  c.parallel.mode = mode;
  if (dp > 1) c.parallel.shard = "zero3";
  return c;
}

// The same evaluation three times: whole, abandoned because the last rank has a signal, and whole.
void evaluate_on_rank(const RunConfig& config, const Model& model, const Batch& batch,
                      Ranks& ranks) {
  RankBackend backend("");
  Engine engine(config, model, &ranks, *backend.kernels, 1, backend.device);
  engine.init_weights(5);
  const Batch share = share_of(batch, config, ranks.layout(), ranks.rank());
  int asked = 0;
  const auto go_on = [&] { return ++asked, agree_on_signal(ranks, 0) != 0; };
  const std::optional<LossSums> whole = engine.eval_loss(share, go_on);
  if (!whole) throw BugError("an evaluation that nobody stopped was abandoned");
  EXPECT_GE(asked, kLayers / 2) << "a pass of many layers asked only before it and after";
  const int most = asked;
  asked = 0;
  const auto stop = [&] {
    const bool has_signal = ++asked >= 3 && ranks.rank() + 1 == ranks.size();
    return agree_on_signal(ranks, has_signal ? SIGTERM : 0) != 0;
  };
  EXPECT_FALSE(engine.eval_loss(share, stop).has_value());
  EXPECT_EQ(asked, 4) << "three, and once more when the pass was left; a whole one asks " << most;
  const std::optional<LossSums> again = engine.eval_loss(share, go_on);
  if (!again) throw BugError("the evaluation after the abandoned one was abandoned too");
  EXPECT_EQ(again->mean(), whole->mean());
}

TEST(StopInAPass, AllRanksLeaveItAtTheSameCollective) {
  struct Case {
    int dp, tp;
    const char* mode;
  };
  const auto model = make_model(model_config(), {});
  const Batch batch = random_batch(8, 12, 99, 7);
  for (const Case& c : {Case{1, 2, "fast"}, Case{2, 1, "fast"}, Case{2, 2, "fast"},
                        Case{1, 2, "exact"}, Case{2, 2, "exact"}}) {
    SCOPED_TRACE(fmt::format("dp={} tp={} {}", c.dp, c.tp, c.mode));
    const RunConfig config = run_config(c.dp, c.tp, c.mode);
    const Layout layout = resolve_layout(config, *model);
    WorldOptions options;
    options.num_ranks = layout.num_ranks();
    const auto world = ShmWorld::create(options);
    std::vector<std::thread> threads;
    for (int r = 0; r < layout.num_ranks(); ++r) {
      threads.emplace_back([&, r] {
        try {
          Ranks ranks(layout, world, r);
          evaluate_on_rank(config, *model, batch, ranks);
        } catch (const Error& e) {
          ADD_FAILURE() << e.what();
          world->abort("a rank failed");
        }
      });
    }
    for (std::thread& t : threads) t.join();
  }
}

}  // namespace
}  // namespace weft::testing
