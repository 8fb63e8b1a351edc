// tests/dist/gpu_answers_test.cpp: answers during training, and evaluations by several ranks, on
// emulated GPUs.
#include <gtest/gtest.h>

#include <fstream>
#include <thread>

#include "base/log.h"
#include "config/session.h"
#include "net/shm_world.h"
#include "tests/backends.h"
#include "tests/dist/gpu_trainer.h"
#include "train/evaluate.h"

namespace weft::testing {
namespace {

// Every answer is "ok", which is learned within a few steps.
Sets answering(const GpuTrainer& run, const Sets& layout) {
  const std::string file = (run.dir() / "../../train.txt").lexically_normal().string();
  Sets sets = {"data.eval=" + file,     "data.source={text} ", "data.target=ok", "eval.generate=11",
               "eval.max_new_tokens=4", "train.eval_every=10", "train.lr=3e-2",  "train.steps=10",
               "checkpoint.every=10",   "data.seq_length=12"};
  sets.insert(sets.end(), layout.begin(), layout.end());
  return sets;
}

TEST(GpuAnswers, AreThoseOfTheCpu) {
  const struct {
    GpuKind kind;
    Sets layout;
  } cases[] = {{GpuKind::kCpu, {}},
               {GpuKind::kShared, {}},
               {GpuKind::kEmulated, {"parallel.tp=2"}},
               {GpuKind::kNccl, {"parallel.dp=2", "parallel.tp=2"}},
               {GpuKind::kNccl, {"parallel.dp=2", "parallel.shard=zero3"}}};
  for (const auto& [kind, layout] : cases) {
    const GpuTrainer run;
    run.train_well(kind, answering(run, layout));
    EXPECT_EQ(run.metrics("exact_match"), Sets{" 1.0"})
        << static_cast<int>(kind) << " " << (layout.empty() ? "" : layout[0]);
  }
}

// Ranks as threads, each with its own handle on the emulated GPU.
TEST(GpuAnswers, RanksEvaluateTogether) {
  const GpuTrainer run;
  run.train_well(GpuKind::kCpu, answering(run, {}));
  set_log_quiet(true);
  const auto evaluated = [&](const Sets& layout) {
    const RunFile file(run.dir() / "run.yaml", layout);
    const auto n = static_cast<int>(file.config().parallel.dp * file.config().parallel.tp);
    WorldOptions world_options;
    world_options.num_ranks = n;
    const auto world = n > 1 ? ShmWorld::create(world_options) : nullptr;
    std::vector<EvalReport> reports(static_cast<size_t>(n));
    std::vector<std::thread> threads;
    for (int r = 0; r < n; ++r) {
      threads.emplace_back([&, r] {
        const TestBackend found = find_backend("cuda_emulated");
        const Backend gpu{found.kernels, found.device, nullptr};
        EvalOptions options;
        options.place = RankPlace{r, 1, world, [&] { return Backend{}; }, nullptr};
        try {
          reports[static_cast<size_t>(r)] = evaluate(file.config(), "", &gpu, options);
        } catch (const std::exception& e) {
          ADD_FAILURE() << "rank " << r << ": " << e.what();
          if (world) world->abort(e.what());
        }
      });
    }
    for (std::thread& t : threads) t.join();
    for (const EvalReport& report : reports) {
      EXPECT_EQ(report.loss_sum, reports[0].loss_sum);
      EXPECT_EQ(report.exact_match, reports[0].exact_match);
    }
    return reports[0];
  };
  const EvalReport one = evaluated({});
  EXPECT_EQ(one.rows, 43);
  EXPECT_EQ(one.exact_match, 1);
  for (const Sets& layout : {Sets{"parallel.dp=2"}, Sets{"parallel.tp=2"},
                             Sets{"parallel.dp=2", "parallel.shard=zero3"}}) {
    const EvalReport got = evaluated(layout);
    EXPECT_EQ(got.rows, one.rows) << layout[0];
    EXPECT_EQ(got.target_tokens, one.target_tokens) << layout[0];
    EXPECT_NEAR(*got.loss(), *one.loss(), 1e-5) << layout[0];
    EXPECT_EQ(got.exact_match, 1) << layout[0];
  }
}

}  // namespace
}  // namespace weft::testing
