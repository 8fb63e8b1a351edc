// tests/e2e/read_slices_test.cpp: ranks read what they hold of a checkpoint, not all of it.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include "tests/e2e/tiny_run.h"

namespace weft::testing {
namespace {

namespace fs = std::filesystem;

// Some megabytes, so that the blocks in which files are read are small against the layers.
struct LargerRun : TinyRun {
  LargerRun() {
    change_config("hidden_size", Json(512));
    change_config("intermediate_size", Json(1024));
    change_config("num_attention_heads", Json(8));
    change_config("num_key_value_heads", Json(8));
  }
  // One step of `name` in this layout, from its own checkpoint or another run's.
  void step(const std::string& name, int64_t steps, std::vector<std::string> layout,
            const std::vector<std::string>& more = {}) const {
    layout.insert(layout.end(), {"name=" + name, fmt::format("train.steps={}", steps)});
    train_well(layout, more);
  }
  int64_t read_bytes(const std::string& name) const {
    return event_lines(dir(name), "started").back().at("read_bytes").as_int();
  }
  int64_t state_bytes(const std::string& name) const {
    int64_t sum = 0;
    for (const auto& entry : fs::directory_iterator(checkpoint(1, name))) {
      if (entry.path().extension() == ".safetensors")
        sum += static_cast<int64_t>(entry.file_size());
    }
    return sum;
  }
};

TEST(ReadSlices, AReshardReadsTheStateAboutOnce) {
  const LargerRun run;
  const std::vector<std::string> zero3 = {"parallel.dp=4", "parallel.shard=zero3"};
  run.step("one", 1, {});
  run.step("four", 1, zero3);
  const int64_t state = run.state_bytes("one");
  EXPECT_GT(state, int64_t{40} << 20);
  const auto from = [&](const char* name) {
    return std::vector<std::string>{"--resume", run.checkpoint(1, name).string()};
  };
  const auto part_read = [&](const char* name, const std::vector<std::string>& layout,
                             const char* source) {
    run.step(name, 2, layout, from(source));
    return static_cast<double>(run.read_bytes(name)) / static_cast<double>(state);
  };
  const double same = part_read("same", zero3, "four");
  const double split = part_read("split", zero3, "one");
  const double joined = part_read("joined", {}, "four");
  const double tp = part_read("tp", {"parallel.tp=2"}, "four");
  fmt::print(
      "read of the state: dp 4 zero3 {:.3f}, 1 -> dp 4 zero3 {:.3f}, dp 4 zero3 -> 1 {:.3f}, "
      "dp 4 zero3 -> tp 2 {:.3f}\n",
      same, split, joined, tp);
  for (const double part : {same, split, joined, tp}) EXPECT_GE(part, 0.99);
  EXPECT_LE(same, 1.01);
  EXPECT_LE(split, 1.15);
  EXPECT_LE(joined, 1.01);
  EXPECT_LE(tp, 1.5);  // of o_proj and down_proj every rank needs a part of every row
}

}  // namespace
}  // namespace weft::testing
