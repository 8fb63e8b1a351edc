// tests/train/same_optimizer_test.cpp: which checkpoints an optimizer can resume from.
#include "train/same_optimizer.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/io/temporary_folder.h"

namespace weft {
namespace {

using testing::TemporaryFolder;

// A checkpoint of one weight with these states; `optimizer` empty: of before the field.
std::string refusal(const std::vector<std::string>& suffixes, const std::string& optimizer,
                    const OptimizerConfig& config, bool frozen = false) {
  const TemporaryFolder folder;
  std::vector<float> values(4);
  std::vector<Slice> slices;
  for (const std::string& suffix : suffixes)
    slices.push_back(whole_tensor("w" + suffix, {4}, Dtype::kF32, values.data()));
  Json state(Json::Object{{"step", Json(int64_t{1})}});
  if (!optimizer.empty()) state.set("optimizer", Json(optimizer));
  write_checkpoint(folder / "step-00000001", slices, state, {});
  Graph graph;
  graph.add({"w", {4}, Dtype::kF32, ValueKind::kParameter, {}, frozen});
  const CheckpointReader reader(folder / "step-00000001");
  try {
    check_same_optimizer(reader, config, graph);
  } catch (const UserError& e) {
    return std::string(e.what()) + "\n" + e.hint();
  }
  return "";
}

OptimizerConfig sgd(double momentum) {
  OptimizerConfig c;
  c.name = "sgd";
  c.momentum = momentum;
  return c;
}

TEST(SameOptimizer, Resumes) {
  EXPECT_EQ(refusal({"", "#m", "#v"}, "adamw", {}), "");
  EXPECT_EQ(refusal({"", "#m", "#v"}, "", {}), "");  // written before the field
  EXPECT_EQ(refusal({"#master", "#m", "#v"}, "adamw", {}), "");
  EXPECT_EQ(refusal({"", "#momentum"}, "sgd", sgd(0.9)), "");
  EXPECT_EQ(refusal({"#master"}, "sgd", sgd(0)), "");
  EXPECT_EQ(refusal({""}, "adamw", {}, true), "");  // nothing is trained
}

TEST(SameOptimizer, IsRejectedOtherwise) {
  const std::string other = refusal({"", "#m", "#v"}, "adamw", sgd(0.9));
  for (const char* part :
       {"train.optimizer: adamw", "the run has sgd", "set train.optimizer to adamw"})
    EXPECT_NE(other.find(part), std::string::npos) << part << "\n" << other;
  for (const double momentum : {0.0, 0.9}) {
    const std::string old = refusal({"", "#m", "#v"}, "", sgd(momentum));
    EXPECT_NE(old.find("has the states #m, #v"), std::string::npos) << old;
  }
  const std::string none = refusal({""}, "sgd", sgd(0.9));
  EXPECT_NE(none.find("has no states"), std::string::npos) << none;
  EXPECT_NE(none.find("train.momentum"), std::string::npos) << none;
  EXPECT_NE(refusal({"", "#momentum"}, "sgd", sgd(0)), "");
}

}  // namespace
}  // namespace weft
