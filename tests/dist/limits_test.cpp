// tests/dist/limits_test.cpp: what exceeds a GPU's limits is rejected with the numbers.
#include <gtest/gtest.h>

#include "base/error.h"
#include "kernel/gpu/device_limits.h"
#include "planning/backend.h"
#include "tests/dist/mesh_run.h"
#include "tests/fake_nccl.h"
#include "tests/io/temporary_folder.h"
#include "tests/kernel/emulated_cuda/table.h"
#include "train/engine.h"

namespace weft::testing {
namespace {

struct Sizes {
  int64_t hidden = 32, heads = 4, rows = 2, positions = 12;
};

std::unique_ptr<EnginePlans> plan(const Sizes& s, const Kernels& kernels) {
  Json config = parse_json(R"({"architectures": ["Qwen2ForCausalLM"], "intermediate_size": 48,
      "num_hidden_layers": 1, "num_key_value_heads": 1, "vocab_size": 67})",
                           "config");
  config.set("hidden_size", Json(s.hidden));
  config.set("num_attention_heads", Json(s.heads));
  RunConfig c;
  c.data.seq_length = s.positions;
  c.train.global_batch = c.train.micro_batch = s.rows;
  const auto model = make_model(config, {});
  return make_engine_plans(c, *model, Layout{}, 0, kernels, 1);
}

std::string refusal(const Sizes& s) {
  EXPECT_NO_THROW(plan(s, cpu_kernels()));  // the CPU accepts it
  return error_of<UserError>([&] { plan(s, emulated_kernels()); });
}

TEST(DeviceLimits, AreRefusedWithTheNumbersAndWhatToDo) {
  EXPECT_NO_THROW(plan({}, emulated_kernels()));
  EXPECT_NO_THROW(plan({.hidden = 2 * kMostHeadDim, .heads = 2}, emulated_kernels()));
  const std::string dim = error_of<UserError>(
      [] { plan({.hidden = 2 * kMostHeadDim + 4, .heads = 2}, emulated_kernels()); });
  EXPECT_NE(dim.find("head dim of 258 is not built"), std::string::npos) << dim;
  const std::string wide = refusal({.hidden = 32896, .heads = 257});
  EXPECT_NE(wide.find("hidden size: 32896"), std::string::npos) << wide;
  const std::string tokens = refusal({.rows = 1009, .positions = 512});
  EXPECT_NE(tokens.find("tokens of a pass: 516608; the limit on a GPU is 516096"),
            std::string::npos)
      << tokens;
  EXPECT_NE(tokens.find("train.micro_batch"), std::string::npos) << tokens;
  EXPECT_NO_THROW(plan({.rows = 1008, .positions = 512}, emulated_kernels()));
  const std::string rows = refusal({.rows = 65536, .positions = 4});
  EXPECT_NE(rows.find("rows of a pass: 65536"), std::string::npos) << rows;
}

ParallelConfig parallel(int64_t dp, int64_t tp, const char* mode = "fast") {
  ParallelConfig p;
  p.dp = dp;
  p.tp = tp;
  p.mode = mode;
  return p;
}

TEST(GpuGroups, TooManyRanksAreRefused) {
  EXPECT_NO_THROW(check_gpu_groups(parallel(16, 2), ""));
  const std::string shared = error_of<UserError>([] { check_gpu_groups(parallel(32, 1), ""); });
  EXPECT_NE(shared.find("parallel.dp=32 x parallel.tp=1"), std::string::npos) << shared;
  EXPECT_NE(shared.find("limited to 16"), std::string::npos) << shared;
  EXPECT_NO_THROW(check_gpu_groups(parallel(32, 1), "2.28.9"));
  EXPECT_THROW(check_gpu_groups(parallel(32, 1, "exact"), "2.28.9"), UserError);
}

TEST(GpuGroups, TwoAtOnceNeedANewNccl) {
  for (const char* good : {"2.26.0", "2.28.9", "3.0.1"}) {
    EXPECT_NO_THROW(check_gpu_groups(parallel(2, 2), good)) << good;
  }
  for (const char* old : {"2.25.1", "2.9.8", "1.30.0", "words"}) {
    EXPECT_NO_THROW(check_gpu_groups(parallel(4, 1), old)) << old;
    const std::string message = error_of<UserError>([&] { check_gpu_groups(parallel(2, 2), old); });
    EXPECT_NE(message.find(fmt::format("deadlock with NCCL {}", old)), std::string::npos)
        << message;
    EXPECT_NE(message.find("2.26 or newer"), std::string::npos) << message;
  }
}

// Ranks not started by the supervisor detect it themselves.
TEST(GpuGroups, RanksRejectItToo) {
  FakeNccl library;
  library.version_text = "2.21.5";
  MeshRun run;
  run.model = parse_json(R"({"architectures": ["Qwen2ForCausalLM"], "hidden_size": 32,
      "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 4,
      "num_key_value_heads": 2, "vocab_size": 67})",
                         "config");
  run.config.data.seq_length = 12;
  run.batches = {random_batch(8, 12, 67, 1)};
  run.nccl = &library;
  EXPECT_NO_THROW(train_at(run, {2, 1, "none"}));
  const std::string message = error_of<UserError>([&] { train_at(run, {2, 2, "none"}); });
  EXPECT_NE(message.find("NCCL 2.21.5"), std::string::npos) << message;
}

}  // namespace
}  // namespace weft::testing
