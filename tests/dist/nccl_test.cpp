// tests/dist/nccl_test.cpp: ranks with one GPU each, over a fake NCCL.
//
// Fake GPUs work asynchronously, in two queues: collectives overlap with computation, with the
// memory that the plan gives them, and passes are captured. A missing ordering shows in the bits.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cmath>
#include <cstdlib>

#include "tests/dist/mesh_run.h"
#include "tests/fake_nccl.h"
#include "train/hang_rule.h"

namespace weft::testing {
namespace {

MeshRun nccl_run(FakeNccl* library, const char* precision) {
  MeshRun run;
  run.model = parse_json(R"({"architectures": ["Qwen2ForCausalLM"], "hidden_size": 32,
      "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
      "num_key_value_heads": 2, "vocab_size": 67, "initializer_range": 0.1,
      "tie_word_embeddings": true})",
                         "config");
  run.config.train.global_batch = 8;
  run.config.train.precision = precision;
  run.config.train.clip_norm = 0.5;
  run.config.data.seq_length = 12;
  for (uint64_t s = 0; s < 3; ++s) run.batches.push_back(random_batch(8, 12, 67, 100 + s));
  run.eval = random_batch(7, 12, 67, 99);
  run.nccl = library;
  return run;
}

const Place kNcclPlaces[] = {
    {2, 1, "none"}, {1, 2, "none"}, {2, 1, "zero1", 2}, {2, 2, "zero3", 2}};

class NcclRun : public ::testing::TestWithParam<const char*> {};

TEST_P(NcclRun, ExactModeHasTheSameBitsInEveryLayout) {
  FakeNccl library;
  MeshRun run = nccl_run(&library, GetParam());
  run.config.parallel.mode = "exact";
  const MeshResult one = train_at(run, {1, 1, "none"});
  for (const Place& place : kNcclPlaces) {
    EXPECT_EQ(join(differences(one, train_at(run, place))), "") << text_of(place);
  }
}

TEST_P(NcclRun, FastModeIsCloseInEveryLayout) {
  FakeNccl library;
  const MeshRun run = nccl_run(&library, GetParam());
  const MeshResult one = train_at(run, {1, 1, "none"});
  const double bar = std::string(GetParam()) == "fp32" ? 1e-5 : 2e-2;
  for (const Place& place : kNcclPlaces) {
    const MeshResult other = train_at(run, place);
    for (size_t s = 0; s < one.losses.size(); ++s) {
      EXPECT_LT(std::abs(one.losses[s] - other.losses[s]) / one.losses[s], bar) << text_of(place);
    }
    for (const int64_t work : other.in_lane) EXPECT_EQ(work > 0, place.dp > 1) << text_of(place);
    for (const int64_t n : other.captured) EXPECT_GE(n, 2) << text_of(place);  // pass and finish
  }
}

TEST_P(NcclRun, ExactModeWhereDpOwnsNoGroups) {
  FakeNccl library;
  MeshRun run = nccl_run(&library, GetParam());
  run.config.parallel.mode = "exact";
  run.config.parallel.exact_dp = 1;
  const MeshResult one = train_at(run, {1, 1, "none"});
  for (const Place& place : {Place{2, 1, "none"}, Place{2, 1, "zero1"}, Place{4, 1, "zero3"}}) {
    EXPECT_EQ(join(differences(one, train_at(run, place))), "") << text_of(place);
  }
}

// At tp 4 a rank is in two groups of neighbours that share a head.
TEST_P(NcclRun, KeyValueHeadsThatTpDoesNotDivide) {
  FakeNccl library;
  MeshRun run = nccl_run(&library, GetParam());
  run.model.set("hidden_size", 48);
  run.model.set("num_attention_heads", 12);
  run.model.set("num_key_value_heads", 3);
  const MeshResult one = train_at(run, {1, 1, "none"});
  const double bar = std::string(GetParam()) == "fp32" ? 1e-5 : 2e-2;
  for (const Place& place : {Place{1, 2, "none"}, Place{1, 4, "none"}, Place{2, 2, "zero1", 2}}) {
    const MeshResult other = train_at(run, place);
    for (size_t s = 0; s < one.losses.size(); ++s) {
      EXPECT_LT(std::abs(one.losses[s] - other.losses[s]) / one.losses[s], bar) << text_of(place);
    }
  }
}

// Negative control: queues without ordering are detected. In a separate process: an overwritten
// value may also be an address that a kernel then writes to.
void train_without_order() {
  FakeNccl library;
  MeshRun run = nccl_run(&library, "fp32");
  const Place place{2, 1, "zero3", 2};
  const MeshResult one = train_at(run, place);
  run.fault = [](FakeDevice& device) { device.is_careless = true; };
  std::string found;
  try {
    found = join(differences(one, train_at(run, place)));
  } catch (const std::exception& e) {  // losses that are NaN
    found = e.what();
  }
  std::_Exit(found.empty() ? 0 : 1);
}

TEST(NcclRunControl, QueuesWithoutOrderHaveOtherBits) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto is_found = [](int status) { return !WIFEXITED(status) || WEXITSTATUS(status) == 1; };
  EXPECT_EXIT(train_without_order(), is_found, "");
}

// Every pass takes longer than the deadline of a collective, and nobody is considered dead.
TEST(NcclRunDeadline, LongPassesAreNotAHang) {
  FakeNccl library;
  MeshRun run = nccl_run(&library, "fp32");
  run.deadline_ms = 1000;
  run.fault = [](FakeDevice& device) { device.copy_ms = 500; };  // three inputs per pass
  const MeshResult slow = train_at(run, {2, 1, "none"});
  run.fault = nullptr;
  EXPECT_EQ(join(differences(slow, train_at(run, {2, 1, "none"}))), "");
}

TEST(NcclRunDeadline, IsTenTimesTheMedianStepAndNeverLess) {
  HangRule rule;
  EXPECT_EQ(rule.allowed_ms(30'000), 300'000);  // nothing is known yet
  rule.note_step(20);
  EXPECT_EQ(rule.allowed_ms(30'000), 30'000);
  for (int i = 0; i < 40; ++i) rule.note_step(9000);  // the first ones are forgotten
  rule.note_step(400'000);                            // one that waited for a disk
  EXPECT_EQ(rule.allowed_ms(30'000), 90'000);
  EXPECT_EQ(rule.allowed_ms(100'000), 100'000);
}

INSTANTIATE_TEST_SUITE_P(Precisions, NcclRun, ::testing::Values("fp32", "bf16"),
                         [](const auto& p) { return std::string(p.param); });

}  // namespace
}  // namespace weft::testing
