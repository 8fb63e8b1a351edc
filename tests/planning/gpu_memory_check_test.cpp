// tests/planning/gpu_memory_check_test.cpp: what does not fit a GPU is rejected with numbers and a
// hint.
#include "planning/gpu_memory_check.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "planning/plan_fit.h"
#include "planning/plan_report.h"
#include "tests/fake_device.h"

namespace weft {
namespace {

class SmallDevice : public testing::FakeDevice {
 public:
  explicit SmallDevice(int64_t bytes) : bytes_(bytes) {}
  int64_t free_bytes() const override { return bytes_; }

 private:
  int64_t bytes_;
};

class Room : public ::testing::Test {
 protected:
  Room() {
    std::filesystem::create_directories(folder_);
    std::ofstream(folder_ / "config.json")
        << R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 512,
               "intermediate_size": 2048, "num_hidden_layers": 2, "num_attention_heads": 8,
               "num_key_value_heads": 4, "vocab_size": 32000, "tie_word_embeddings": false})";
    config_.model.path = folder_.string();
    config_.model.init = "random";
    config_.launch.device = "cpu";
    config_.data.seq_length = 128;
    config_.train.global_batch = 8;
  }
  ~Room() override { std::filesystem::remove_all(folder_); }

  std::string complaint(int64_t arena, int64_t available) const {
    const SmallDevice device(available);
    try {
      check_gpu_memory(config_, check_layout(config_), cpu_kernels(), arena, device);
    } catch (const UserError& e) {
      return std::string(e.what()) + "\n" + e.hint();
    }
    return "";
  }

  std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("weft-room-" + std::to_string(::getpid()));
  RunConfig config_;
};

TEST_F(Room, WhatFitsIsAccepted) {
  EXPECT_EQ(complaint(1000, kLibraryBytes + 1000), "");
  EXPECT_NE(complaint(1001, kLibraryBytes + 1000), "");
}

TEST_F(Room, TheNearestLayoutIsNamed) {
  const int64_t arena = int64_t{600} << 20;
  const std::string text = complaint(arena, kLibraryBytes + arena / 3);
  EXPECT_NE(text.find(std::to_string(arena)), std::string::npos) << text;
  EXPECT_NE(text.find(std::to_string(kLibraryBytes + arena / 3)), std::string::npos) << text;
  EXPECT_NE(text.find("GPUs of this size fits"), std::string::npos) << text;
}

// A layout is named as soon as its arena fits: memory besides it is not counted twice.
TEST_F(Room, TheNearestLayoutHasTheMemoryOfTheRun) {
  constexpr int64_t kPlenty = int64_t{1} << 40;
  int64_t smallest = kPlenty;
  for (const FitRow& row : fit_layouts(config_, kPlenty, 2, {.kernels = &cpu_kernels()}).rows) {
    if (row.is_admissible) smallest = std::min(smallest, row.arena);
  }
  const int64_t one = plan_run(config_).arena();
  ASSERT_LT(smallest, one);
  const std::string fits = " on 2 GPUs of this size fits";
  const std::string text = complaint(one, kLibraryBytes + smallest);
  EXPECT_NE(text.find(fits), std::string::npos) << text;
  EXPECT_EQ(complaint(one, kLibraryBytes + smallest - 1).find(fits), std::string::npos);
}

// More rows at once need less here, since one pass keeps no gradients: no direction is guessed.
TEST_F(Room, ChangesThatWouldHelpAreNamed) {
  config_.train.precision = "bf16";
  config_.train.master_weights = false;
  config_.train.micro_batch = 2;
  config_.data.seq_length = 16;
  const int64_t some = plan_run(config_).arena();
  config_.train.micro_batch = 8;
  const int64_t all = plan_run(config_).arena();
  ASSERT_LT(all, some);
  config_.train.micro_batch = 2;
  const std::string text = complaint(some, kLibraryBytes + all);
  EXPECT_NE(text.find("; or set train.micro_batch: 8: dp=1,tp=1,shard=none needs "),
            std::string::npos)
      << text;
  EXPECT_EQ(text.find("lower"), std::string::npos) << text;
  EXPECT_EQ(text.find("use 2 ranks"), std::string::npos) << text;
  EXPECT_EQ(complaint(some, kLibraryBytes + all - 1).find("micro_batch"), std::string::npos);
}

TEST_F(Room, NothingFitsInNothing) {
  EXPECT_NE(complaint(1000, kLibraryBytes + 1).find("no layout of up to 32 GPUs"),
            std::string::npos);
}

TEST(RoomOfGeneration, IsRefusedWithItsOwnHint) {
  const SmallDevice device(kLibraryBytes + 1000);
  EXPECT_NO_THROW(check_gpu_memory("generation", 1000, device, "fewer"));
  EXPECT_NO_THROW(check_gpu_memory("generation", int64_t{1} << 50, host_device(), "fewer"));
  try {
    check_gpu_memory("generation", 1001, device, "fewer");
    FAIL() << "was taken";
  } catch (const UserError& e) {
    EXPECT_NE(std::string(e.what()).find("generation needs "), std::string::npos) << e.what();
    EXPECT_EQ(e.hint(), "fewer");
  }
}

}  // namespace
}  // namespace weft
