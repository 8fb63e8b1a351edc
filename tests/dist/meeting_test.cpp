// tests/dist/meeting_test.cpp: no rank starts its update before all are done with their passes.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "base/json.h"
#include "tests/dist/generate_run.h"
#include "tests/dist/mesh_run.h"
#include "train/engine.h"

namespace weft::testing {
namespace {

// Snapshots rely on it: a rank whose copy is slow holds up the others before they have a new step.
TEST(Meeting, WhatASlowRankDoesBeforeItIsDoneWhereverPassesHaveReturned) {
  RunConfig config = config_of(2, 1, "none", "fast");
  config.train.global_batch = 2;
  config.train.micro_batch = 1;
  config.data.seq_length = 8;
  const auto model =
      make_model(parse_json(R"({"architectures": ["Qwen2ForCausalLM"], "hidden_size": 32,
      "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 4,
      "num_key_value_heads": 2, "vocab_size": 64, "tie_word_embeddings": true})",
                            "config"),
                 {});
  const Layout layout = resolve_layout(config, *model);
  const Batch batch = random_batch(2, 8, 64, 3);
  std::atomic<bool> is_done = false, was_done = false;
  on_ranks(layout, [&](Ranks& ranks) {
    Engine engine(config, *model, &ranks, cpu_kernels(), 1);
    engine.init_weights(5);
    const bool is_slow = ranks.rank() == 1;
    engine.start_passes(share_of(batch, config, layout, ranks.rank()), [&] {
      if (!is_slow) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      is_done = true;
    });
    if (!is_slow) was_done = is_done.load();
  });
  EXPECT_TRUE(was_done);
}

}  // namespace
}  // namespace weft::testing
