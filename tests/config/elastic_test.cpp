// tests/config/elastic_test.cpp: in which layouts an elastic run may continue.
#include "config/elastic.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"
#include "tests/io/temporary_folder.h"

namespace weft {
namespace {

using testing::error_of;

struct ElasticCase {
  int64_t nodes, ranks_per_node, tp, global_batch, micro_batch;
  const char* mode;
  std::string layouts;  // "nodes:dp", the largest first
};

RunConfig config_of(const ElasticCase& k) {
  RunConfig c;
  c.launch.elastic = true;
  c.launch.nodes = k.nodes;
  c.parallel.dp = k.nodes * k.ranks_per_node / k.tp;
  c.parallel.tp = k.tp;
  c.parallel.mode = k.mode;
  c.train.global_batch = k.global_batch;
  c.train.micro_batch = k.micro_batch;
  return c;
}

std::string layouts_of(const RunConfig& c) {
  std::string text;
  for (const ElasticLayout& layout : elastic_layouts(c))
    text += fmt::format("{}{}:{}", text.empty() ? "" : " ", layout.nodes, layout.dp);
  return text;
}

TEST(Elastic, LayoutsAreThoseThatTheRunFileWouldBeAcceptedWith) {
  const std::vector<ElasticCase> cases = {
      {4, 1, 1, 12, 1, "exact", "4:4 3:3 2:2 1:1"},
      {4, 1, 1, 8, 2, "exact", "4:4 2:2 1:1"},
      {4, 1, 1, 12, 1, "fast", "4:4 3:3 2:2 1:1"},
      {4, 1, 1, 12, 3, "fast", "4:4 2:2 1:1"},  // dp 3: 4 rows, not a multiple of 3
      {4, 1, 1, 8, 2, "fast", "4:4 2:2 1:1"},
      {4, 1, 1, 8, 4, "fast", "4:4 2:2 1:1"},        // dp 4 lowers micro_batch to 2
      {2, 1, 1, 6, 4, "fast", "2:2"},                // dp 1: 6 rows, not a multiple of 4
      {4, 2, 2, 12, 1, "exact", "4:4 3:3 2:2 1:1"},  // a group of two on each node
      {4, 2, 2, 8, 2, "exact", "4:4 2:2 1:1"},
      {4, 2, 1, 8, 1, "exact", "4:8 2:4 1:2"},  // dp 6 does not divide 8
      {4, 4, 2, 24, 1, "fast", "4:8 3:6 2:4 1:2"},
      {8, 1, 1, 8, 1, "fast", "8:8 4:4 2:2 1:1"},
  };
  for (const ElasticCase& k : cases)
    EXPECT_EQ(layouts_of(config_of(k)), k.layouts)
        << k.nodes << " x " << k.ranks_per_node << ", tp " << k.tp << ", batch " << k.global_batch;
}

TEST(Elastic, LayoutsHaveAtLeastMinNodes) {
  RunConfig c = config_of({4, 1, 1, 12, 1, "exact", ""});
  c.launch.min_nodes = 2;
  EXPECT_EQ(layouts_of(c), "4:4 3:3 2:2");
  c.launch.min_nodes = 3;
  EXPECT_EQ(layouts_of(c), "4:4 3:3");
}

TEST(Elastic, MinNodesMustBePossible) {
  const auto complaint = [](int64_t min_nodes, bool elastic, int64_t global_batch) {
    RunConfig c = config_of({4, 1, 1, global_batch, 1, "exact", ""});
    c.launch.min_nodes = min_nodes;
    c.launch.elastic = elastic;
    std::vector<std::string> complaints;
    check_elastic(c, &complaints);
    return complaints.empty() ? "" : complaints.front();
  };
  EXPECT_EQ(complaint(2, true, 12), "");
  EXPECT_NE(
      complaint(4, true, 12).find("launch.min_nodes is 4, which is not below launch.nodes (4)"),
      std::string::npos);
  EXPECT_NE(complaint(2, false, 12).find("without launch.elastic"), std::string::npos);
  EXPECT_NE(complaint(3, true, 8).find("at least 3 (launch.min_nodes)"), std::string::npos);
}

// As many nodes as a run may have: quick, since it is asked at every start.
TEST(Elastic, ManyNodes) {
  RunConfig c = config_of({65536, 8, 8, 65536, 1, "fast", ""});
  EXPECT_EQ(elastic_layouts(c).size(), 17u);
}

TEST(Elastic, ExactRowsCount) {
  RunConfig c = config_of({4, 1, 1, 12, 4, "exact", ""});
  c.parallel.exact_rows = 3;
  EXPECT_EQ(layouts_of(c), "4:4 2:2 1:1");  // dp 3: 4 rows, no whole leaves
}

TEST(Elastic, WithoutItOnlyTheRunFilesOwn) {
  RunConfig c = config_of({4, 1, 1, 12, 1, "exact", ""});
  c.launch.elastic = false;
  EXPECT_EQ(layouts_of(c), "4:4");
}

TEST(Elastic, AnyRunMaySaveWithFewer) {
  RunConfig c = config_of({4, 1, 1, 12, 1, "exact", ""});
  const auto counts = [&] {
    std::vector<int64_t> all;
    for (const ElasticLayout& layout : saving_layouts(c)) all.push_back(layout.nodes);
    return all;
  };
  c.launch.min_nodes = 3;
  EXPECT_EQ(counts(), (std::vector<int64_t>{4, 3, 2, 1}));
  c.launch.min_nodes = 0;
  c.launch.elastic = false;
  EXPECT_EQ(counts(), (std::vector<int64_t>{4, 3, 2, 1}));
  c.train.grad_accum = 3;  // of dp 4 alone
  EXPECT_EQ(counts(), std::vector<int64_t>{4});
}

// Every layout keeps ranks per node, tp and the batch, and passes the run file's own checks.
TEST(Elastic, LayoutsDifferInNothingElse) {
  for (int64_t batch = 1; batch <= 48; ++batch) {
    const RunConfig c = config_of({6, 4, 2, batch, 2, "fast", ""});
    for (const ElasticLayout& layout : elastic_layouts(c)) {
      if (layout.nodes == c.launch.nodes) continue;  // given, not chosen
      const RunConfig smaller = with_nodes(c, layout.nodes);
      EXPECT_EQ(smaller.parallel.dp, layout.dp);
      EXPECT_EQ(smaller.ranks_per_node(), 4);
      EXPECT_EQ(smaller.parallel.tp, 2);
      EXPECT_EQ(smaller.train.global_batch, batch);
      EXPECT_EQ(smaller.num_passes() * smaller.micro_batch() * layout.dp, batch);
    }
  }
}

class ElasticRunFile : public ::testing::Test {
 protected:
  RunFile read(std::vector<std::string> sets) const {
    std::ofstream(folder_ / "run.yaml") << "name: a\nmodel: {path: m}\ndata: {train: [t.txt]}\n";
    sets.insert(sets.end(), {"launch.elastic=true", "launch.interface=eth0"});
    return RunFile(folder_ / "run.yaml", sets);
  }
  testing::TemporaryFolder folder_;
};

TEST_F(ElasticRunFile, RefusedWhereItCouldChangeNothing) {
  const auto refusal = [&](const std::vector<std::string>& sets) {
    return error_of<UserError>([&] { read(sets); });
  };
  EXPECT_NE(refusal({}).find("launch.elastic is true, but launch.nodes is 1"), std::string::npos);
  EXPECT_NE(refusal({"launch.nodes=2", "parallel.dp=2", "train.grad_accum=2"})
                .find("train.grad_accum is 2: leave it at 0"),
            std::string::npos);
  EXPECT_NE(
      refusal({"launch.nodes=2", "parallel.dp=2", "train.global_batch=6", "train.micro_batch=4"})
          .find("no dp is possible"),
      std::string::npos);
  // Nodes that do not divide are reported as such, once.
  EXPECT_EQ(refusal({"launch.nodes=3", "parallel.dp=2"}).find("launch.elastic"), std::string::npos);
}

TEST_F(ElasticRunFile, TheResolvedFileStaysWhatWasAskedFor) {
  RunFile file = read({"launch.nodes=4", "parallel.dp=8", "parallel.tp=2"});
  const std::string asked = file.resolved();
  file.use_nodes(2);
  EXPECT_EQ(file.config().parallel.dp, 4);
  EXPECT_EQ(file.config().launch.nodes, 2);
  EXPECT_EQ(file.resolved(), asked);
  EXPECT_NE(asked.find("dp: 8"), std::string::npos) << asked;
}

}  // namespace
}  // namespace weft
