// tests/golden/stories_test.cpp: a well-known trained model: its loss and logits.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>

#include "base/file.h"
#include "kernel/cpu/level.h"
#include "model/load.h"
#include "tests/batch_lists.h"
#include "tests/engine_step.h"
#include "tests/golden/tolerances.h"
#include "tests/shared_data.h"
#include "train/engine.h"

namespace weft {
namespace {

const std::filesystem::path kFolder = shared_data() / "weights/stories260K_hf";

class StoriesGolden : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(kFolder)) GTEST_SKIP() << kFolder << " does not exist";
    folder_ = std::make_unique<HfFolder>(kFolder);
    folder_->open_weights();
    model_ = make_model(folder_->config(), {});
    const Json golden = parse_json(read_file(kFolder / "golden.json"), "golden.json");
    for (const Json& id : golden.at("input_ids").as_array())
      ids_.push_back(static_cast<int32_t>(id.as_int()));
    ASSERT_EQ(ids_.size(), 64u);
  }
  std::unique_ptr<HfFolder> folder_;
  std::unique_ptr<Model> model_;
  std::vector<int32_t> ids_;
};

TEST_F(StoriesGolden, MeanCrossEntropy) {
  RunConfig c;
  c.train.global_batch = 1;
  c.data.seq_length = 64;
  Batch batch;
  testing::BatchLists lists;
  lists.ids = ids_;
  lists.targets.assign(ids_.begin() + 1, ids_.end());
  lists.lengths = {64};
  lists.targets.push_back(-1);
  lists.put(64, &batch);
  batch.target_tokens = 63;
  for (const char* level : available_levels()) {
    Ranks alone{Layout{}};
    Engine engine(c, *model_, &alone, *find_kernels(level), 1);
    engine.load_weights(*folder_);
    EXPECT_NEAR(run_passes(engine, batch).mean(), 0.40356, 1e-5) << level;
  }
}

TEST_F(StoriesGolden, LogitsOfEveryPosition) {
  const std::string bytes = read_file(kFolder / "golden_logits_64x512_f32.bin");
  const int64_t T = 64, V = 512;
  std::vector<float> wanted(static_cast<size_t>(T * V));
  ASSERT_EQ(bytes.size(), wanted.size() * 4);
  std::memcpy(wanted.data(), bytes.data(), bytes.size());
  Graph graph;
  model_->trace_generate(&graph, {1, T, Dtype::kF32, T});
  const Plan plan = make_plan(std::move(graph), {&cpu_kernels(), 1, 1});
  ArenaLayout layout;
  layout.add(plan);
  const Arena arena(layout.total_bytes());
  ThreadPool pool(1);
  Executor e(plan, layout, arena, &pool);
  model_->fill_constants(plan.graph, [&](const std::string& n) { return e.find(n); });
  for (const ParameterSpec& p : model_->parameters())
    load_parameter(*folder_, p, Dtype::kF32, e.find(p.name));
  e.at<int32_t>("starts")[0] = 0;
  e.at<int32_t>("lengths")[0] = static_cast<int32_t>(T);
  for (int64_t t = 0; t < T; ++t) {
    e.at<int32_t>("ids")[t] = ids_[static_cast<size_t>(t)];
    e.at<int32_t>("positions")[t] = static_cast<int32_t>(t);
  }
  double worst = 0;
  for (int64_t t = 0; t < T; ++t) {
    e.at<int32_t>("last")[0] = static_cast<int32_t>(t);
    e.run_pass({});
    for (int64_t v = 0; v < V; ++v) {
      worst = std::max(worst, std::abs(double{e.at<float>("logits")[v]} -
                                       wanted[static_cast<size_t>(t * V + v)]));
    }
  }
  EXPECT_LT(worst, kLogitError);
}

}  // namespace
}  // namespace weft
