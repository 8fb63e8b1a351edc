// tests/train/fault_events_test.cpp: deaths, losses and failures in events.jsonl.
#include "train/fault_events.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "base/json.h"
#include "tests/io/temporary_folder.h"

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

}  // namespace
}  // namespace weft
