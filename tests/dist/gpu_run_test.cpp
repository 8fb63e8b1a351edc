// tests/dist/gpu_run_test.cpp: whole runs on an emulated GPU: resumed, packed, dynamic, faulty.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>

#include "checkpoint/checkpoint.h"
#include "checkpoint/compare.h"
#include "checkpoint/logical.h"
#include "planning/fault.h"
#include "tests/dist/gpu_trainer.h"
#include "train/tensor_hashes.h"

namespace weft::testing {
namespace {

const Sets kExact = {"parallel.mode=exact"};

// The differences between two checkpoints, weights and states; one line each.
std::string differences(const std::filesystem::path& a, const std::filesystem::path& b) {
  const Comparison c = compare_models(open_logical(a.string()), open_logical(b.string()));
  EXPECT_TRUE(c.states_compared);
  std::string text;
  for (const TensorDifference& d : c.differences) text += to_string(d) + "\n";
  return text;
}

TEST(GpuRun, ResumesFromACheckpointWithTheSameBits) {
  const GpuTrainer whole, parts;
  whole.train_well(GpuKind::kEmulated, {"train.precision=bf16"});
  parts.train_well(GpuKind::kEmulated, {"train.precision=bf16", "train.steps=3"});
  ASSERT_EQ(parts.metrics("loss").size(), 3u);
  parts.train_well(GpuKind::kEmulated, {"train.precision=bf16"});
  EXPECT_EQ(parts.metrics("loss"), whole.metrics("loss"));
  EXPECT_EQ(parts.metrics("grad_norm"), whole.metrics("grad_norm"));
  EXPECT_EQ(differences(parts.checkpoint(6), whole.checkpoint(6)), "");
}

// One rank, then two that cut the tensors, then two that share the optimizer's states.
TEST(GpuRun, ResumesInAnotherLayoutWithTheSameBits) {
  const GpuTrainer whole, parts;
  whole.train_well(GpuKind::kEmulated, kExact);
  parts.train_well(GpuKind::kEmulated, with(kExact, {"train.steps=2"}));
  parts.train_well(GpuKind::kEmulated, with(kExact, {"train.steps=4", "parallel.tp=2"}));
  parts.train_well(GpuKind::kEmulated,
                   with(kExact, {"parallel.dp=2", "parallel.shard=zero3", "train.micro_batch=2"}));
  EXPECT_EQ(parts.metrics("loss"), whole.metrics("loss"));
  EXPECT_EQ(differences(parts.checkpoint(6), whole.checkpoint(6)), "");
}

class GpuRunLayout : public ::testing::TestWithParam<const char*> {};

TEST_P(GpuRunLayout, TrainsAsTheCpuDoesAndInEveryLayout) {
  const Sets sets = {std::string("data.layout=") + GetParam(), "data.seq_length=48",
                     "train.global_batch=4", "train.micro_batch=2", "train.steps=4"};
  const GpuTrainer cpu, gpu, two, late;
  cpu.train_well(GpuKind::kCpu, sets);
  gpu.train_well(GpuKind::kEmulated, sets);
  two.train_well(GpuKind::kEmulated, with(sets, {"parallel.dp=2"}));
  late.train_well(GpuKind::kNccl, with(sets, {"parallel.dp=2"}));
  const std::vector<double> wanted = cpu.losses();
  ASSERT_EQ(wanted.size(), 4u);
  for (const GpuTrainer* other : {&gpu, &two, &late}) {
    const std::vector<double> got = other->losses();
    ASSERT_EQ(got.size(), wanted.size());
    for (size_t s = 0; s < wanted.size(); ++s) {
      EXPECT_LT(std::abs(got[s] - wanted[s]) / wanted[s], 1e-5) << "step " << s + 1;
    }
  }
}

TEST_P(GpuRunLayout, ExactModeHasTheSameBits) {
  const Sets sets = with(kExact, {std::string("data.layout=") + GetParam(), "data.seq_length=48",
                                  "train.global_batch=4", "train.micro_batch=2", "train.steps=3"});
  const GpuTrainer one, two;
  one.train_well(GpuKind::kEmulated, sets);
  two.train_well(GpuKind::kNccl, with(sets, {"parallel.dp=2", "parallel.shard=zero1"}));
  EXPECT_EQ(two.metrics("loss"), one.metrics("loss"));
  EXPECT_EQ(differences(two.checkpoint(3), one.checkpoint(3)), "");
}

INSTANTIATE_TEST_SUITE_P(Layouts, GpuRunLayout, ::testing::Values("pack", "dynamic"),
                         [](const auto& p) { return std::string(p.param); });

// The second batch is of empty rows. A GPU gets the next step before it has counted the targets of
// this one, but the rate must not advance.
TEST(GpuRun, AStepWithoutTargetsDoesNotAdvanceTheRate) {
  std::string rows;
  for (int i = 0; i < 24; ++i) rows += i / 8 == 1 ? "\n" : fmt::format("row {} of a batch\n", i);
  const Sets sets = {"data.shuffle=false", "data.drop_empty=false", "train.steps=3",
                     "train.schedule=linear", "train.warmup_steps=2"};
  const GpuTrainer cpu;
  cpu.write_rows(rows);
  cpu.train_well(GpuKind::kCpu, sets);
  const std::vector<std::string> wanted = cpu.metrics("lr");
  ASSERT_EQ(wanted.size(), 3u);
  EXPECT_EQ(cpu.metrics("target_tokens").at(1), " 0");
  EXPECT_NE(wanted[1], wanted[0]);
  EXPECT_EQ(wanted[2], wanted[1]) << "two of three steps count";
  for (const auto& [kind, layout] :
       {std::pair{GpuKind::kEmulated, "parallel.dp=1"}, {GpuKind::kNccl, "parallel.dp=2"}}) {
    const GpuTrainer gpu;
    gpu.write_rows(rows);
    gpu.train_well(kind, with(sets, {layout}));
    EXPECT_EQ(gpu.metrics("target_tokens"), cpu.metrics("target_tokens"));
    EXPECT_EQ(gpu.metrics("lr"), wanted) << layout;
    EXPECT_EQ(CheckpointReader(gpu.checkpoint(3)).state().at("updates").as_int(), 2);
  }
}

// Set while it lives: a deliberate fault (train/faults.h), or a request for hashes.
struct WithVariable {
  WithVariable(const char* variable, const char* value) : name(variable) {
    ::setenv(name, value, 1);
  }
  ~WithVariable() { ::unsetenv(name); }
  const char* name;
};

TEST(GpuRunControl, AFlippedBitOfACopyIsDetectedAtItsStep) {
  const WithVariable fault(kFaultVariable, "copy,step=3,rank=1");
  for (const GpuKind kind : {GpuKind::kEmulated, GpuKind::kNccl}) {
    const GpuTrainer trainer;
    const auto ends = trainer.train(kind, {"parallel.dp=2"});
    std::string all;
    for (const RankEnd& end : ends) {
      EXPECT_NE(end.exit_code, 0);
      all += end.message + "\n";
    }
    EXPECT_NE(all.find("step 3: "), std::string::npos) << all;
    EXPECT_NE(all.find("differs between ranks"), std::string::npos) << all;
  }
}

// What `weft verify` compares: the hashes of all tensors after every step.
std::vector<std::string> hashes(const GpuTrainer& trainer) {
  std::vector<std::string> lines;
  std::ifstream text(trainer.dir() / kHashesFile);
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  return lines;
}

TEST(GpuRunControl, AFlippedBitAndASwappedLeafAreDetectedAtTheirStep) {
  const WithVariable every(kHashesVariable, "1");
  const Sets sets = with(kExact, {"train.micro_batch=1", "train.steps=3"});
  const Sets two = with(sets, {"parallel.dp=2", "parallel.shard=zero1"});
  const GpuTrainer one, healthy;
  one.train_well(GpuKind::kEmulated, sets);
  healthy.train_well(GpuKind::kEmulated, two);
  EXPECT_EQ(hashes(healthy), hashes(one));
  for (const char* words :
       {"flip,step=2,rank=1,tensor=model.layers.1.mlp.up_proj.weight", "swap,step=2,rank=1"}) {
    const WithVariable fault(kFaultVariable, words);
    const GpuTrainer faulty;
    faulty.train_well(GpuKind::kEmulated, two);
    const auto got = hashes(faulty), wanted = hashes(one);
    ASSERT_EQ(got.size(), wanted.size());
    ASSERT_GE(got.size(), 3u);
    const size_t at = static_cast<size_t>(
        std::mismatch(got.begin(), got.end(), wanted.begin()).first - got.begin());
    ASSERT_LT(at, got.size()) << words;
    EXPECT_EQ(parse_json(got[at], "hashes").at("step").as_int(), 2) << words;
  }
}

}  // namespace
}  // namespace weft::testing
