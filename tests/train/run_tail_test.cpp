// tests/train/run_tail_test.cpp: the last lines of a run's files, whatever they hold.
#include "train/run_tail.h"

#include <gtest/gtest.h>

#include <fstream>
#include <random>

#include "tests/io/temporary_folder.h"

namespace weft {
namespace {

class RunTail : public ::testing::Test {
 protected:
  std::filesystem::path write(const std::string& text) {
    std::ofstream(folder_ / "lines.jsonl", std::ios::binary) << text;
    return folder_ / "lines.jsonl";
  }
  testing::TemporaryFolder folder_;
};

TEST_F(RunTail, OnlyCompleteLinesOfTheEnd) {
  using Lines = std::vector<std::string>;
  EXPECT_EQ(read_last_lines(folder_ / "missing", 100), Lines{});
  EXPECT_EQ(read_last_lines(write("a\nbb\nccc"), 100), (Lines{"a", "bb"}));
  EXPECT_EQ(read_last_lines(write("aaaa\nbb\ncc\n"), 8), (Lines{"bb", "cc"}));
  EXPECT_EQ(read_last_lines(write("aaaa\nbb\ncc\n"), 5), (Lines{"cc"}));
  EXPECT_EQ(read_last_lines(write(std::string(1000, 'x')), 100), Lines{});
}

TEST_F(RunTail, MeansOfTheLastSteps) {
  std::string text;
  for (int i = 1; i <= 200; ++i)
    text += R"({"step": )" + std::to_string(i) + R"(, "epoch": 3, "loss": 2.5, "step_ms": )" +
            (i <= 150 ? "9999" : "500") + R"(, "tokens_per_s": 100})" + "\n";
  text += "{\"step\": 200, \"eval_loss\": 1.25}\n{\"epoch\": 3, \"mean_loss\": 1}\n{\"step\": 2";
  const SpeedTail tail = read_speed(write(text));
  EXPECT_EQ(tail.step, 200);
  EXPECT_EQ(tail.epoch, 3);
  EXPECT_EQ(tail.loss, 2.5);
  EXPECT_EQ(tail.eval_loss, 1.25);
  EXPECT_DOUBLE_EQ(*tail.step_s, 0.5);
  EXPECT_DOUBLE_EQ(*tail.tokens_per_s, 100);
}

TEST_F(RunTail, WhatHappenedSinceTheLastStart) {
  const EventTail tail = read_events(
      write("{\"event\": \"started\", \"step\": 0}\n{\"event\": \"finished\", \"step\": 9}\n"
            "{\"event\": \"started\", \"step\": 9, \"total_steps\": 20}\n"
            "{\"event\": \"checkpoint\", \"step\": 10, \"path\": \"x/step-00000010\"}\n"
            "{\"event\": \"checkpoint\", \"step\": 11, \"path\": \"x/best\"}\n"
            "{\"event\": \"rank_died\"}\n"));
  EXPECT_FALSE(tail.end);
  EXPECT_EQ(find_int(*tail.started, "total_steps"), 20);
  EXPECT_EQ(find_int(*tail.checkpoint, "step"), 10);
  EXPECT_EQ(tail.num_deaths, 1);
  EXPECT_EQ(find_text(*tail.last, "event"), "rank_died");
}

TEST_F(RunTail, NodesCountAsRanksDo) {
  const auto deaths = [&](const std::vector<std::string>& names) {
    std::string text;
    for (const std::string& name : names) text += "{\"event\": \"" + name + "\"}\n";
    return read_events(write(text)).num_deaths;
  };
  EXPECT_EQ(deaths({"started", "node_lost", "recovered", "node_lost", "started"}), 2);
  EXPECT_EQ(deaths({"started", "node_lost"}), 1);  // it waits for another
  EXPECT_EQ(deaths({"started", "node_lost", "checkpoint", "rank_died", "recovered"}), 1);
  EXPECT_EQ(deaths({"started", "node_lost", "node_lost", "layout", "recovered"}), 1);
  EXPECT_EQ(deaths({"started", "rank_died", "recovered", "node_lost", "rank failed"}), 1);
  // One that could not start its ranks.
  EXPECT_EQ(deaths({"started", "node_lost\", \"ranks\": [], \"message\": \"", "layout"}), 0);
  EXPECT_EQ(deaths({"started", "node_lost\", \"ranks\": [2], \"message\": \"", "layout"}), 1);
}

TEST_F(RunTail, AnyBytes) {
  std::mt19937 dice(11);
  const std::string alphabet = "{}[]\",:\n\\\"event\"started step_ms1e9-\xff\x1b";
  for (int i = 0; i < 300; ++i) {
    std::string text;
    for (size_t n = dice() % 2000; n > 0; --n) text += alphabet[dice() % alphabet.size()];
    const auto path = write(text);
    static_cast<void>(read_speed(path));
    static_cast<void>(read_events(path));
  }
  // Values of other kinds are as good as none.
  const SpeedTail tail =
      read_speed(write("{\"step\": \"x\", \"step_ms\": 5}\n{\"step\": 3, \"step_ms\": null}\n"
                       "{\"step\": 99999999999999999999999, \"step_ms\": 1}\n[]\n3\n"));
  EXPECT_FALSE(tail.step);
  EXPECT_FALSE(read_events(write("{\"event\": {}}\n")).last);
}

}  // namespace
}  // namespace weft
