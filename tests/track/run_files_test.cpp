// tests/track/run_files_test.cpp: the exact lines of metrics.jsonl and events.jsonl.
#include "track/run_files.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/error.h"
#include "tests/data/helpers.h"
#include "tests/resource_limit.h"
#include "track/memory.h"

namespace weft {
namespace {

StepMetrics step_line(int64_t step, int64_t epoch, double loss) {
  StepMetrics m;
  m.step = step;
  m.epoch = epoch;
  m.loss = loss;
  m.grad_norm = 1.5;
  m.lr = 0.001;
  m.tokens = 1024;
  m.target_tokens = 100;
  m.step_ms = 12.5;
  m.tokens_per_s = 8000;
  m.mem_bytes = 1 << 20;
  m.time_s = 0.5 * static_cast<double>(step);
  return m;
}

TEST(Metrics, StepLineHasTheKeysInOrder) {
  const TempFolder folder;
  const auto path = folder.path() / "metrics.jsonl";
  {
    MetricsWriter out(path);
    out.write(step_line(1, 1, 1.0 / 3));
    StepMetrics empty = step_line(2, 1, 0);
    empty.loss.reset();
    empty.grad_norm.reset();
    out.write(empty);
    empty.loss_scale = 32768;  // only in fp16
    out.write(empty);
    out.write(EpochMetrics{1, 0.25, 2.5});
    out.write(EvalMetrics{2, 0.5, 0.125, {{"exact_match", 0.75}}});
  }
  EXPECT_EQ(
      read_file(path),
      "{\"step\": 1, \"epoch\": 1, \"loss\": 0.33333333333333331, \"grad_norm\": 1.5, \"lr\": "
      "0.001, \"tokens\": 1024, \"target_tokens\": 100, \"step_ms\": 12.5, \"tokens_per_s\": "
      "8000, \"mem_bytes\": 1048576, \"time_s\": 0.5}\n"
      "{\"step\": 2, \"epoch\": 1, \"loss\": null, \"grad_norm\": null, \"lr\": 0.001, "
      "\"tokens\": 1024, \"target_tokens\": 100, \"step_ms\": 12.5, \"tokens_per_s\": 8000, "
      "\"mem_bytes\": 1048576, \"time_s\": 1}\n"
      "{\"step\": 2, \"epoch\": 1, \"loss\": null, \"grad_norm\": null, \"lr\": 0.001, "
      "\"tokens\": 1024, \"target_tokens\": 100, \"step_ms\": 12.5, \"tokens_per_s\": 8000, "
      "\"mem_bytes\": 1048576, \"time_s\": 1, \"loss_scale\": 32768}\n"
      "{\"epoch\": 1, \"mean_loss\": 0.25, \"time_s\": 2.5}\n"
      "{\"step\": 2, \"eval_loss\": 0.5, \"eval_time_s\": 0.125, \"exact_match\": 0.75}\n");
}

TEST(Metrics, EveryDoubleRoundTrips) {
  const TempFolder folder;
  const auto path = folder.path() / "m.jsonl";
  uint64_t bits = 88172645463325252u;
  std::vector<double> values;
  {
    MetricsWriter out(path);
    for (int i = 1; i <= 500; ++i) {
      bits ^= bits << 13, bits ^= bits >> 7, bits ^= bits << 17;
      values.push_back(std::ldexp(static_cast<double>(bits), -(i % 100)));
      out.write(step_line(i, 1, values.back()));
    }
  }
  const std::string text = read_file(path);
  size_t at = 0;
  for (const double v : values) {
    const size_t end = text.find('\n', at);
    EXPECT_EQ(parse_json(text.substr(at, end - at), "m").at("loss").as_number(), v);
    at = end + 1;
  }
}

// A bad line is reported before a start writes anything.
TEST(Metrics, AForeignLineIsNamed) {
  const TempFolder folder;
  const auto path = folder.path() / "metrics.jsonl";
  check_metrics(path, 9);  // a missing file is fine
  for (const char* bad :
       {"{\"step\": 2, ", "[1]", "{\"step\": \"two\"}", "{\"step\": 2, \"loss\": 1}"}) {
    std::filesystem::remove(path);
    MetricsWriter(path).write(step_line(1, 1, 3.0));
    FileWriter(path, FileWriter::Mode::kAppend).write(std::string(bad) + "\n");
    MetricsWriter(path).write(step_line(3, 1, 3.0));
    const std::string before = read_file(path);
    try {
      check_metrics(path, 9);
      FAIL() << bad;
    } catch (const UserError& e) {
      EXPECT_NE(std::string(e.what()).find("metrics.jsonl:2 "), std::string::npos) << e.what();
      EXPECT_NE(e.hint().find("delete line 2"), std::string::npos) << e.hint();
    }
    EXPECT_THROW(cut_metrics_after(path, 9), UserError);
    EXPECT_EQ(read_file(path), before);
  }
}

// It is meant to be pasted into a shell.
TEST(Metrics, TheCommandOfTheHintQuotesThePath) {
  const TempFolder folder;
  const auto path = folder.path() / "metrics of $HOME.jsonl";
  FileWriter(path, FileWriter::Mode::kAppend).write("[1]\n");
  try {
    check_metrics(path, 9);
    FAIL();
  } catch (const UserError& e) {
    EXPECT_NE(e.hint().find("(sed -i 1d '" + path.string() + "')"), std::string::npos) << e.hint();
  }
}

TEST(Metrics, CutKeepsLinesUpToTheStep) {
  const TempFolder folder;
  const auto path = folder.path() / "metrics.jsonl";
  {
    MetricsWriter out(path);
    for (int64_t s = 1; s <= 10; ++s) {
      out.write(step_line(s, s <= 5 ? 1 : 2, 10.0 / static_cast<double>(s)));
      if (s % 5 == 0) out.write(EpochMetrics{s / 5, 1.0, 1.0});
      if (s % 4 == 0) out.write(EvalMetrics{s, 1.0, 1.0, {}});
    }
  }
  FileWriter(path, FileWriter::Mode::kAppend).write("{\"step\": 11, \"ep");  // torn
  const MetricsTail all = cut_metrics_after(path, 100);
  EXPECT_EQ(all.last_step, 10);
  EXPECT_TRUE(all.is_epoch_reported);
  EXPECT_EQ(*all.best_loss, 1.0);
  const MetricsTail tail = cut_metrics_after(path, 7);
  EXPECT_EQ(tail.last_step, 7);
  EXPECT_EQ(tail.time_s, 3.5);
  EXPECT_EQ(tail.epoch, 2);
  EpochLoss live;
  for (double s : {6, 7}) live.add(10.0 / s, 100);
  EXPECT_EQ(tail.epoch_loss.mean(), live.mean());
  EXPECT_EQ(tail.last_loss, 10.0 / 7);
  EXPECT_EQ(tail.last_eval_step, 4);
  EXPECT_FALSE(tail.is_epoch_reported);
  const std::string text = read_file(path);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 9);  // 7 steps, 1 epoch, 1 evaluation
  const MetricsTail none = cut_metrics_after(folder.path() / "none.jsonl", 3);
  EXPECT_EQ(none.last_step, 0);
  EXPECT_EQ(none.last_eval_step, -1);
  EXPECT_EQ(none.epoch_loss.mean(), std::nullopt);
}

TEST(Metrics, AbandonedLinesAreKept) {
  const TempFolder folder;
  const auto path = folder.path() / "metrics.jsonl";
  const auto kept = folder.path() / "metrics.jsonl.abandoned";
  {
    MetricsWriter out(path);
    for (int64_t s = 1; s <= 4; ++s) out.write(step_line(s, 1, 1.0));
  }
  const std::string all = read_file(path);
  cut_metrics_after(path, 4, true);
  EXPECT_FALSE(std::filesystem::exists(kept));
  FileWriter(path, FileWriter::Mode::kAppend).write("{\"step\": 5, \"ep");  // torn
  cut_metrics_after(path, 3, true);
  EXPECT_EQ(read_file(path) + read_file(kept), all);
  cut_metrics_after(path, 2, true);
  EXPECT_EQ(read_file(kept).find("{\"step\": 4"), 0u) << read_file(kept);
  EXPECT_NE(read_file(kept).find("\n{\"step\": 3"), std::string::npos) << read_file(kept);
  const std::string before = read_file(kept);
  cut_metrics_after(path, 1);  // redone by the run itself, not abandoned
  EXPECT_EQ(read_file(kept), before);
}

TEST(Metrics, FullDiskIsARunError) {
  const TempFolder folder;
  const testing::ResourceLimit limit(RLIMIT_FSIZE, 0);
  MetricsWriter out(folder.path() / "metrics.jsonl");
  EXPECT_THROW(out.write(step_line(1, 1, 1.0)), RunError);
  EventWriter events(folder.path() / "events.jsonl", 0);
  EXPECT_THROW(events.write("started"), RunError);
}

TEST(Events, LineNamesEventTimeRankAndHost) {
  const TempFolder folder;
  const auto path = folder.path() / "events.jsonl";
  EventWriter(path, 3).write("started", {{"arena_bytes", 4096}});
  const std::string text = read_file(path);
  const Json line = parse_json(text, "events");
  ASSERT_EQ(line.as_object().size(), 5u);
  EXPECT_EQ(line.as_object()[0].first, "event");
  EXPECT_EQ(line.at("event").as_string(), "started");
  EXPECT_EQ(line.at("time").as_string().size(), std::string("2025-01-01T00:00:00.000Z").size());
  EXPECT_EQ(line.at("rank").as_int(), 3);
  EXPECT_FALSE(line.at("host").as_string().empty());
  EXPECT_EQ(line.at("arena_bytes").as_int(), 4096);
}

TEST(Memory, GrowsWithTouchedPages) {
  const int64_t before = anonymous_resident_bytes();
  std::vector<char> block(64 << 20, 1);
  EXPECT_GT(anonymous_resident_bytes(), before + (60 << 20));
  EXPECT_GE(peak_resident_bytes(), anonymous_resident_bytes());
  EXPECT_EQ(block[12345], 1);
}

}  // namespace
}  // namespace weft
