// tests/allocation/allocation_test.cpp: no step after the first allocates.
//
// 0 calls of malloc, calloc, realloc, memalign, aligned_alloc, posix_memalign and operator new by
// any thread of the process, in passes, update and end of the steps 2 to 4: in fp32, in bf16 with
// masters and without, with and without accumulation, with an evaluation, at every level.
#include <gtest/gtest.h>

#include "kernel/cpu/level.h"
#include "tests/allocation/counter.h"
#include "tests/batch_lists.h"
#include "tests/engine_step.h"
#include "train/engine.h"

namespace weft {
namespace {

using testing::start_counting;
using testing::stop_counting;

// Sanitizers have their own malloc, which is not counted: they do not run this room.
bool counts() {
  start_counting();
  const auto seen = std::make_unique<std::string>(100, 'x');
  void* volatile raw = ::malloc(10);
  ::free(raw);
  return stop_counting() >= 3;
}

std::unique_ptr<Model> small_model(double dropout = 0) {
  return make_model(parse_json(R"({"architectures": ["Qwen2ForCausalLM"], "hidden_size": 48,
      "intermediate_size": 80, "num_hidden_layers": 2, "num_attention_heads": 4,
      "num_key_value_heads": 2, "vocab_size": 300, "tie_word_embeddings": true})",
                               "config"),
                    {0, dropout});
}

Batch make_batch(int64_t rows, int64_t T, int step) {
  Batch b;
  testing::BatchLists lists;
  for (int64_t r = 0; r < rows; ++r) {
    const auto length = static_cast<int32_t>(2 + (r * 5 + step) % (T - 1));
    lists.lengths.push_back(length);
    lists.numbers.push_back(r);
    for (int64_t t = 0; t < T; ++t) {
      lists.ids.push_back(static_cast<int32_t>((r * 31 + t * 7 + step) % 300));
      lists.targets.push_back(t + 1 < length ? static_cast<int32_t>((r + t * 11) % 300) : -1);
    }
    b.target_tokens += length - 1;
  }
  lists.put(T, &b);
  return b;
}

class Allocation : public ::testing::TestWithParam<const char*> {};

TEST_P(Allocation, NoneInAStepAfterTheFirst) {
  ASSERT_TRUE(counts());
  const auto model = small_model();
  for (const char* precision : {"fp32", "bf16"}) {
    for (bool masters : {true, false}) {
      for (int64_t micro : {4, 2}) {
        RunConfig c;
        c.train.global_batch = 4;
        c.train.micro_batch = micro;
        c.train.precision = precision;
        c.train.master_weights = masters;
        c.data.seq_length = 20;
        c.data.eval_fraction = 0.5;
        Ranks alone{Layout{}};
        Engine engine(c, *model, &alone, *find_kernels(GetParam()), 2);
        engine.init_weights(3);
        std::vector<Batch> batches;
        for (int s = 0; s < 4; ++s) batches.push_back(make_batch(4, 20, s));
        for (int s = 0; s < 4; ++s) {
          const Batch& batch = batches[static_cast<size_t>(s)];
          start_counting();
          const double loss = run_passes(engine, batch).mean();
          const double norm = run_update(engine, 1e-3, s + 1);
          engine.eval_loss(batch);
          const int64_t calls = stop_counting();
          EXPECT_GT(loss, 0);
          EXPECT_GT(norm, 0);
          if (s == 0) continue;
          EXPECT_EQ(calls, 0) << precision << " masters " << masters << " step " << s + 1;
        }
      }
    }
  }
}

// Lengths of `dynamic`: only the first batch of each allocates; `pack` has one length. With
// dropout.
TEST_P(Allocation, NoneAfterTheFirstBatchOfALength) {
  ASSERT_TRUE(counts());
  const auto model = small_model(0.1);
  for (const char* layout : {"dynamic", "pack"}) {
    RunConfig c;
    c.train.global_batch = 4;
    c.train.micro_batch = 2;
    c.data.seq_length = 48;
    c.data.layout = layout;
    c.data.eval_fraction = 0.5;
    Ranks alone{Layout{}};
    Engine engine(c, *model, &alone, *find_kernels(GetParam()), 2);
    engine.init_weights(3);
    const bool packs = layout[0] == 'p';
    std::vector<Batch> batches;
    for (int s = 0; s < 9; ++s) {
      batches.push_back(make_batch(4, packs ? 48 : 16 * (1 + s % 3), s));
      if (!packs) continue;
      const auto positions = batches.back().reset("positions", 48, 0);
      for (size_t i = 0; i < positions.size(); ++i) positions[i] = static_cast<int32_t>(i % 12);
    }
    for (int s = 0; s < 9; ++s) {
      const Batch& batch = batches[static_cast<size_t>(s)];
      start_counting();
      const double loss = run_passes(engine, batch).mean();
      run_update(engine, 1e-3, s + 1);
      engine.eval_loss(batch);
      const int64_t calls = stop_counting();
      EXPECT_GT(loss, 0);
      if (s < (packs ? 1 : 3)) continue;
      EXPECT_EQ(calls, 0) << layout << " step " << s + 1;
    }
  }
}

std::vector<const char*> all_kernels() {
  std::vector<const char*> names = available_levels();
  names.push_back("ref");
  return names;
}
INSTANTIATE_TEST_SUITE_P(Levels, Allocation, ::testing::ValuesIn(all_kernels()),
                         [](const auto& p) { return std::string(p.param); });

}  // namespace
}  // namespace weft
