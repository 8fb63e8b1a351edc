// tests/planning/cluster_page_test.cpp: the table of docs/cluster.md for 8, 512 and 10,000 ranks is
// what the program plans.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "planning/cluster_report.h"

namespace weft {
namespace {

constexpr const char* kPage = "docs/cluster.md";  // tests run in the root of the repository
constexpr const char* kRunFile = "examples/clusters/runs/llama-3.1-8b.yaml";
constexpr const char* kCluster = "examples/clusters/10000-h100.yaml";

// A number as the page prints it: "1507", "10,870", "57.8 %", "5.0 h".
struct Printed {
  double value = 0;
  double digit = 1;  // one unit of the last place
  // The plan is deterministic; a value that lies between two numbers may be rounded to either.
  bool stands_for(double planned) const { return std::abs(planned - value) <= digit * 0.51; }
};

Printed read_number(std::string cell) {
  std::erase(cell, ',');
  std::smatch parts;
  const std::regex number(R"((\d+)(?:\.(\d+))?(?: (?:%|h))?)");
  if (!std::regex_match(cell, parts, number)) throw std::runtime_error("no number: " + cell);
  return {std::stod(cell), std::pow(10.0, -static_cast<double>(parts[2].length()))};
}

int64_t whole(const std::string& cell) { return std::llround(read_number(cell).value); }

struct PageRow {
  int64_t ranks = 0, dp = 1, tp = 1;
  bool is_hierarchical = false;
  Printed step_ms, tokens_per_s, mfu, exposed, mtbf_h, from_memory, from_storage;
};

std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  std::istringstream text(line);
  std::string cell;
  std::getline(text, cell, '|');  // in front of the first bar
  while (std::getline(text, cell, '|')) {
    const size_t begin = cell.find_first_not_of(' ');
    if (begin == std::string::npos) throw std::runtime_error("an empty cell: " + line);
    cells.push_back(cell.substr(begin, cell.find_last_not_of(' ') + 1 - begin));
  }
  return cells;
}

PageRow read_row(const std::string& line) {
  const std::vector<std::string> cells = cells_of(line);
  if (cells.size() != 10) throw std::runtime_error("not ten cells: " + line);
  PageRow row;
  row.ranks = whole(cells[0]);
  std::smatch parts;
  if (!std::regex_match(cells[1], parts, std::regex(R"(dp ([\d,]+?)(?:, tp (\d+))?)")))
    throw std::runtime_error("no layout: " + cells[1]);
  row.dp = whole(parts[1]);
  if (parts[2].matched) row.tp = whole(parts[2]);
  if (cells[2] != "NCCL's" && cells[2] != "hierarchical")
    throw std::runtime_error("no collectives: " + cells[2]);
  row.is_hierarchical = cells[2] == "hierarchical";
  Printed* const numbers[] = {&row.step_ms, &row.tokens_per_s, &row.mfu,         &row.exposed,
                              &row.mtbf_h,  &row.from_memory,  &row.from_storage};
  for (size_t i = 0; i < std::size(numbers); ++i) *numbers[i] = read_number(cells[3 + i]);
  return row;
}

std::vector<PageRow> read_table() {
  std::ifstream page(kPage);
  std::vector<PageRow> rows;
  bool is_table = false;
  for (std::string line; std::getline(page, line);) {
    if (line.starts_with("| ranks | layout | collectives | step ms |")) {
      std::getline(page, line);  // |---|
      is_table = true;
    } else if (is_table && !line.starts_with("|")) {
      break;
    } else if (is_table) {
      rows.push_back(read_row(line));
    }
  }
  return rows;
}

Cluster cluster_of(const PageRow& row) {
  Cluster cluster = read_cluster(kCluster);
  if (row.is_hierarchical) cluster.algorithm = "hierarchical";
  return cluster;
}

// As the page says: 16,384 tokens per GPU and step, half as many with tp 8, in one pass.
ClusterReport plan(const PageRow& row, const Cluster& cluster) {
  const int64_t tokens_per_gpu = row.tp == 8 ? 8192 : 16384;
  const RunFile base(kRunFile, {}, RunFile::Use::kLook);
  const int64_t rows_per_rank = tokens_per_gpu * row.tp / base.config().data.seq_length;
  const auto set = [](const char* key, int64_t value) {
    return std::string(key) + "=" + std::to_string(value);
  };
  const RunFile file(
      kRunFile,
      {set("parallel.dp", row.dp), set("parallel.tp", row.tp),
       set("train.micro_batch", rows_per_rank), set("train.global_batch", rows_per_rank * row.dp)},
      RunFile::Use::kLook);
  return plan_cluster(file.config(), cluster);
}

struct Compared {
  const char* name;
  Printed printed;
  double planned;
};

std::vector<Compared> compare(const PageRow& row, const ClusterReport& r) {
  return {{"step ms", row.step_ms, 1e3 * r.times.step},
          {"tokens/s per rank", row.tokens_per_s,
           r.tokens_per_s() / static_cast<double>(r.layout.num_ranks())},
          {"MFU", row.mfu, 100 * r.mfu()},
          {"exposed", row.exposed, 100 * r.times.exposed() / r.times.step},
          {"mean time between failures", row.mtbf_h, 1 / r.failures_per_s() / 3600},
          {"goodput from memory", row.from_memory, 100 * r.from_memory.value().goodput},
          {"goodput from storage", row.from_storage, 100 * r.from_storage.goodput}};
}

TEST(ClusterPage, TheTableIsWhatIsPlanned) {
  const std::vector<PageRow> rows = read_table();
  ASSERT_GE(rows.size(), 8u);
  std::set<int64_t> sizes;
  for (const PageRow& row : rows) {
    sizes.insert(row.ranks);
    const ClusterReport r = plan(row, cluster_of(row));
    EXPECT_EQ(r.layout.num_ranks(), row.ranks);
    EXPECT_TRUE(r.fits());
    for (const Compared& c : compare(row, r))
      EXPECT_TRUE(c.printed.stands_for(c.planned))
          << kPage << ": " << row.ranks << " ranks, dp " << row.dp << ", tp " << row.tp
          << (row.is_hierarchical ? ", hierarchical: " : ": ") << c.name << ": " << c.printed.value
          << " in the table, " << c.planned << " planned";
  }
  EXPECT_EQ(sizes, (std::set<int64_t>{8, 512, 10000}));
}

// A link that is a tenth slower shows wherever communication is exposed.
TEST(ClusterPage, ASlowerLinkWouldShow) {
  for (const PageRow& row : read_table()) {
    if (row.ranks != 512) continue;
    Cluster cluster = cluster_of(row);
    (row.tp > 1 ? cluster.inside : cluster.between).gb_per_s *= 0.9;
    const std::vector<Compared> all = compare(row, plan(row, cluster));
    EXPECT_TRUE(std::any_of(all.begin(), all.end(),
                            [](const Compared& c) { return !c.printed.stands_for(c.planned); }))
        << "dp " << row.dp << ", tp " << row.tp;
  }
}

}  // namespace
}  // namespace weft
