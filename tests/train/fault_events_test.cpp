// tests/train/fault_events_test.cpp: deaths, losses and failures in events.jsonl.
#include "train/fault_events.h"

#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <sstream>
#include <thread>

#include "base/json.h"
#include "config/run_config.h"
#include "tests/io/temporary_folder.h"
#include "track/run_files.h"

namespace weft {
namespace {

class FaultEvents : public ::testing::Test {
 protected:
  std::string text() const {
    std::ostringstream all;
    all << std::ifstream(folder_ / "events.jsonl").rdbuf();
    return all.str();
  }
  Json last() const {
    const std::string all = text();
    const size_t at = all.rfind('\n', all.size() - 2);
    return parse_json(all.substr(at == std::string::npos ? 0 : at + 1), "the last event");
  }
  void begin() const { std::ofstream(folder_ / "events.jsonl") << "{\"event\": \"started\"}\n"; }

  // Of a run with this model.
  std::string resolved(const std::string& model) const {
    const testing::TemporaryFolder other;
    std::ofstream(other / "run.yaml")
        << "name: x\nmodel: {path: " << model << "}\ndata: {train: [t.txt]}\n";
    return RunFile(other / "run.yaml", {}).resolved();
  }

  testing::TemporaryFolder folder_;
};

TEST_F(FaultEvents, ALostNodeHasItsRanks) {
  begin();
  report_node_loss(folder_.path(), 4, 2, "node 2 was lost");
  EXPECT_EQ(last().find("event")->as_string(), "node_lost");
  EXPECT_EQ(last().find("rank")->as_int(), 4);
  EXPECT_EQ(last().find("message")->as_string(), "node 2 was lost");
  EXPECT_EQ(last().find("ranks")->dump(), Json(Json::Array{Json(4), Json(5)}).dump());
}

TEST_F(FaultEvents, ANodeThatCouldNotStartItsRanksHasNone) {
  begin();
  report_node_loss(folder_.path(), 4, 0, "node 2 cannot start its ranks");
  EXPECT_TRUE(last().find("ranks")->as_array().empty());
}

// Rank 0 may be writing a line, unless it was on that node.
TEST_F(FaultEvents, OnlyRankZerosOwnNodeMayHaveLeftATornLine) {
  begin();
  std::ofstream(folder_ / "events.jsonl", std::ios::app) << "{\"event\": \"che";
  report_node_loss(folder_.path(), 2, 2, "node 1 was lost");
  EXPECT_NE(text().find("\"che"), std::string::npos);
  report_node_loss(folder_.path(), 0, 2, "node 0 was lost");
  std::ofstream(folder_ / "events.jsonl", std::ios::app) << "{\"event\": \"torn";
  report_node_loss(folder_.path(), 0, 2, "node 0 was lost again");
  EXPECT_EQ(text().find("\"torn"), std::string::npos);
  EXPECT_EQ(last().find("message")->as_string(), "node 0 was lost again");
}

TEST_F(FaultEvents, ADeathHasAllThatDied) {
  begin();
  report_death(folder_.path(), {2, "rank 2 was killed", {3, 0}});
  EXPECT_EQ(last().find("event")->as_string(), "rank_died");
  EXPECT_EQ(last().find("rank")->as_int(), 2);
  EXPECT_EQ(last().find("ranks")->dump(), Json(Json::Array{Json(0), Json(2), Json(3)}).dump());
  report_death(folder_.path(), {-1, "rank 0 waited"});
  EXPECT_TRUE(last().find("ranks")->as_array().empty());
}

TEST_F(FaultEvents, AFailureThatIsNoRanksFaultSaysSo) {
  begin();
  report_failure(folder_.path(), {"rank failed", -1, "1 of 2 nodes joined"});
  EXPECT_EQ(last().find("rank")->as_int(), 0);
  EXPECT_TRUE(last().find("ranks")->as_array().empty());
  report_failure(folder_.path(), {"rank failed", 3, "rank 3 was killed"});
  EXPECT_EQ(last().find("rank")->as_int(), 3);
  EXPECT_EQ(last().find("ranks"), nullptr);
}

TEST_F(FaultEvents, BeforeTheRunHasBegunNothingIsWritten) {
  report_node_loss(folder_.path(), 0, 1, "node 0 was lost");
  report_death(folder_.path(), {1, "rank 1 was killed"});
  EXPECT_EQ(text(), "");
}

TEST_F(FaultEvents, AStartThatFailsEarlyTouchesNobodyElsesFolder) {
  std::ofstream(folder_ / ".lock") << "";
  std::ofstream(folder_ / "secret") << "";
  EXPECT_TRUE(begin_events(folder_.path(), resolved("a")));
  begin();
  EXPECT_TRUE(begin_events(folder_.path(), resolved("a")));  // the second such start
  EXPECT_EQ(text(), "{\"event\": \"started\"}\n");
  std::filesystem::remove(folder_ / "events.jsonl");
  std::ofstream(folder_ / "thesis.tex") << "";
  EXPECT_FALSE(begin_events(folder_.path(), resolved("a")));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "events.jsonl"));
}

// Of the same name, perhaps: it has not failed.
TEST_F(FaultEvents, AStartThatFailsEarlyIsNoEventOfAnotherRun) {
  begin();
  std::ofstream(folder_ / "run.yaml") << resolved("a");
  EXPECT_TRUE(begin_events(folder_.path(), resolved("a")));
  EXPECT_FALSE(begin_events(folder_.path(), resolved("b")));
  std::ofstream(folder_ / "run.yaml") << resolved("a").substr(0, 100);
  EXPECT_FALSE(begin_events(folder_.path(), resolved("a")));
}

TEST_F(FaultEvents, WhatHappensEarlierIsWrittenWhenTheRunHasBegun) {
  EarlyEvents early;
  const auto die = [&](int rank) {
    early.record([this, rank](const std::string& time) {
      report_death(folder_.path(), {rank, "rank was killed"}, time);
    });
  };
  die(1);
  EXPECT_EQ(text(), "");
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  const std::string opened = event_time();
  begin();
  early.note_opened();
  EXPECT_EQ(last().find("rank")->as_int(), 1);
  EXPECT_LT(last().find("time")->as_string(), opened);  // when it happened
  die(2);
  EXPECT_EQ(last().find("rank")->as_int(), 2);
  EXPECT_GE(last().find("time")->as_string(), opened);
}

}  // namespace
}  // namespace weft
