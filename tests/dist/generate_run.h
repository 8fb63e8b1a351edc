// tests/dist/generate_run.h: generation in any layout, with ranks that are threads.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/backends.h"
#include "tests/generate/tiny_model.h"
#include "train/rank_generator.h"

namespace weft::testing {

using Prompts = std::vector<std::vector<int32_t>>;

// All weights of the model, in memory that the tensors refer to.
struct Weighed {
  explicit Weighed(const Model& model) {
    for (const ParameterSpec& spec : model.parameters()) {
      std::vector<float>& data = kept.emplace_back(static_cast<size_t>(num_elements(spec.shape)));
      load_random(spec, Dtype::kF32, data.data());
      source.weights.push_back(tensor_in_memory(spec.name, spec.shape, Dtype::kF32, data.data()));
    }
    std::sort(source.weights.begin(), source.weights.end(),
              [](const LogicalTensor& a, const LogicalTensor& b) { return a.name < b.name; });
  }
  std::deque<std::vector<float>> kept;
  LogicalModel source;
};

inline RunConfig config_of(int dp, int tp, const char* shard, const char* mode) {
  RunConfig c;
  c.parallel.dp = dp;
  c.parallel.tp = tp;
  c.parallel.shard = shard;
  c.parallel.mode = mode;
  c.train.global_batch = dp;
  return c;
}

// fn(ranks) of every rank, each a thread.
inline void on_ranks(const Layout& layout, const std::function<void(Ranks&)>& fn) {
  WorldOptions options;
  options.num_ranks = layout.num_ranks();
  const auto world = ShmWorld::create(options);
  std::mutex mutex;
  std::exception_ptr error;
  std::vector<std::thread> threads;
  for (int r = 0; r < layout.num_ranks(); ++r) {
    threads.emplace_back([&, r] {
      try {
        Ranks ranks(layout, world, r);
        ranks.share_gpus(true);
        fn(ranks);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!error) error = std::current_exception();
        world->abort("a rank failed");
      }
    });
  }
  for (std::thread& t : threads) t.join();
  if (error) std::rethrow_exception(error);
}

// The continuations, which all ranks must have alike.
inline Prompts generate(const Model& model, const RunConfig& config, const Prompts& prompts,
                        const SampleOptions& sample, const std::string& backend_name = "",
                        int64_t max_positions = 0) {
  const Weighed weights(model);
  const Layout layout = resolve_layout(config, model);
  std::vector<Prompts> got(static_cast<size_t>(layout.num_ranks()));
  on_ranks(layout, [&](Ranks& ranks) {
    const RankBackend rank_backend(backend_name);
    const Backend backend{rank_backend.kernels, rank_backend.device, nullptr};
    ThreadPool pool(1);
    RankGenerator generator(model, weights.source, {3, max_positions, Dtype::kF32}, &ranks, backend,
                            &pool, "", false);
    got[static_cast<size_t>(ranks.rank())] = generator->generate(prompts, sample);
  });
  for (const Prompts& of_rank : got) EXPECT_EQ(of_rank, got[0]);
  return got[0];
}

}  // namespace weft::testing
