// tests/exec/dump_test.cpp: a dump reads like a program: each name is written before it is read;
// the picture has a box for each buffer, and none covers another. Expected texts are in data/.
#include "exec/dump.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <regex>
#include <set>
#include <sstream>

#include "exec/memory_picture.h"
#include "graph/autodiff.h"
#include "optim/updates.h"
#include "parallel/data_parallel.h"
#include "tests/exec/random_graph.h"
#include "tests/golden_file.h"

namespace weft {
namespace {

using testing::GraphChoice;
using testing::random_choice;
using testing::training_graph;

Plan tiny_plan(int num_passes, bool masters = false) {
  GraphChoice c;
  if (masters) c.shape.compute = Dtype::kBf16;
  c.masters = masters;
  return make_plan(training_graph(c), {&ref_kernels(), 1, num_passes});
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// Of "name (2, 3) fp32 [place], name (4) fp32 [place]" the names.
std::vector<std::string> written_names(const std::string& text) {
  static const std::regex kWritten(R"((\S+) \([^)]*\) \w+ \[[^\]]*\])");
  std::vector<std::string> names;
  for (std::sregex_iterator at(text.begin(), text.end(), kWritten), end; at != end; ++at) {
    names.push_back((*at)[1]);
  }
  return names;
}

std::vector<std::string> split_names(const std::string& text) {
  std::vector<std::string> names;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(", ", at), text.size());
    names.push_back(text.substr(at, end - at));
    at = end + 2;
  }
  return names;
}

void check_dump(const Plan& plan) {
  const std::string dump = dump_plan(plan);
  std::set<std::string> known;
  bool in_kept = false;
  size_t nodes = 0;
  static const std::regex kKept(R"(  \w+ +(\S+) \([^)]*\) \w+  \d+ bytes.*)");
  static const std::regex kNode(
      R"( *(\d+) (\w+(?: tp| dp)?) +(\d+|-)  (.*) <- (.*) \| (\d+) bytes \| .*)");
  for (const std::string& line : lines_of(dump)) {
    if (line.starts_with("kept values:")) in_kept = true;
    std::smatch found;
    if (in_kept && nodes == 0 && std::regex_match(line, found, kKept)) {
      EXPECT_TRUE(known.insert(found[1]).second) << found[1] << " is listed twice";
    } else if (in_kept && std::regex_match(line, found, kNode)) {
      EXPECT_EQ(found[1], std::to_string(nodes++));
      for (const std::string& name : split_names(found[5])) {
        EXPECT_TRUE(known.contains(name)) << name << " was not written: " << line;
      }
      const std::vector<std::string> written = written_names(found[4]);
      EXPECT_FALSE(written.empty()) << line;
      EXPECT_NE(found[6], "0") << line;
      known.insert(written.begin(), written.end());
    }
  }
  EXPECT_EQ(nodes, plan.graph.pass.size() + plan.graph.finish.size());
}

// A step of one rank of two: three passes, buckets that are cut after each, bf16 with masters.
Plan sharded_plan() {
  testing::DecoderShape shape;
  shape.layers = 1;
  shape.compute = Dtype::kBf16;
  Graph graph;
  const Ref losses = testing::trace_decoder(&graph, shape);
  testing::freeze(&graph, "norm2");
  add_backward(&graph, losses, Dtype::kF32);
  recompute_cheap_values(&graph);
  const DataParallel mesh{.dp = 2, .rank = 1, .shard = Shard::kZero2, .num_passes = 3};
  const auto buckets = apply_data_parallel(&graph, mesh);
  UpdateOptions options;
  options.master_weights = true;
  add_updates(&graph, find_optimizer("adamw"), {}, options);
  add_parameter_gathers(&graph, buckets, mesh);
  return make_plan(std::move(graph), {&ref_kernels(), 1, mesh.num_passes});
}

TEST(Dump, MatchesTheFile) {
  testing::expect_file("tests/exec/data/dump.txt", dump_plan(sharded_plan()));
}

TEST(MemoryPicture, MatchesTheFile) {
  testing::expect_file("tests/exec/data/memory.svg",
                       draw_memory(sharded_plan(), "dp=2, shard=zero2"));
}

TEST(Dump, EveryNameIsWrittenBeforeItIsRead) {
  std::mt19937 random(7);
  for (int i = 0; i < 12; ++i) {
    check_dump(make_plan(training_graph(random_choice(&random)), {&ref_kernels(), 1, 1 + i % 2}));
  }
}

TEST(Dump, NamesAreUnique) {
  const Plan plan = tiny_plan(2);
  const std::vector<std::string> names = unique_names(plan.graph);
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), plan.graph.values.size());
  Graph graph;
  for (const char* name : {"a", "a", "a~2", "b", "a"}) {
    graph.add({name, {1}, Dtype::kF32, ValueKind::kActivation});
  }
  EXPECT_EQ(unique_names(graph), (std::vector<std::string>{"a", "a~2~", "a~2", "b", "a~3"}));
}

TEST(Dump, AdamwListsWhatItUpdates) {
  const std::string dump = dump_plan(tiny_plan(2, true));
  const std::regex line(
      R"( adamw .*embed \(.*\) bf16 \[updated\], embed#m \(.*\) fp32 \[updated\], embed#v )"
      R"(\(.*\) fp32 \[updated\], embed#master \(.*\) fp32 \[updated\] <- embed#grad, grad_scale)");
  EXPECT_TRUE(std::regex_search(dump, line)) << dump;
}

TEST(Dump, HasALegendAndBothLists) {
  const std::string dump = dump_plan(tiny_plan(2));
  for (const char* part : {"one line per node", "[OFFSET until N]", "NAME~2", "kept values:",
                           "2 times per step", "finish: ", "once per step", "[added]", "scratch"}) {
    EXPECT_NE(dump.find(part), std::string::npos) << part;
  }
  EXPECT_NE(dump_plan(tiny_plan(1)).find("nodes, once per step"), std::string::npos);
}

// The places that nodes of this operation write to first, and whether they add there.
std::vector<bool> first_outputs_add(const DataParallel& mesh, const std::string& op) {
  Graph graph;
  const Ref losses = testing::trace_decoder(&graph, {});
  add_backward(&graph, losses, Dtype::kF32);
  apply_data_parallel(&graph, mesh);
  add_updates(&graph, find_optimizer("adamw"), {}, {});
  const Plan plan = make_plan(std::move(graph), {&ref_kernels(), 1, mesh.num_passes});
  const std::regex node(" *\\d+ " + op + R"( +(?:\d+|-)  [^\[]*\[([^\]]*)\].*)");
  std::vector<bool> adds;
  for (const std::string& line : lines_of(dump_plan(plan))) {
    std::smatch found;
    if (std::regex_match(line, found, node))
      adds.push_back(found[1].str().find("added") != std::string::npos);
  }
  EXPECT_FALSE(adds.empty()) << op;
  return adds;
}

TEST(Dump, MarksNodesThatAccumulate) {
  const auto all = [](const std::vector<bool>& adds, bool wanted) {
    return std::all_of(adds.begin(), adds.end(), [&](bool a) { return a == wanted; });
  };
  const DataParallel once{.dp = 2, .num_passes = 1}, none{.dp = 2, .num_passes = 2};
  EXPECT_TRUE(all(first_outputs_add(once, "linear_dw"), false));
  EXPECT_TRUE(all(first_outputs_add(none, "linear_dw"), true));
  EXPECT_TRUE(all(first_outputs_add(none, "all_reduce dp"), false));
  // Gradients that are cut after every pass are rewritten; their shards are summed.
  const DataParallel cut{.dp = 2, .shard = Shard::kZero2, .num_passes = 2};
  EXPECT_TRUE(all(first_outputs_add(cut, "linear_dw"), false));
  EXPECT_TRUE(all(first_outputs_add(cut, "embedding_grad"), true));  // tied: after the head's
  EXPECT_TRUE(all(first_outputs_add(cut, "reduce_scatter dp"), true));
  const DataParallel whole{.dp = 2, .shard = Shard::kZero1, .num_passes = 2};
  EXPECT_TRUE(all(first_outputs_add(whole, "reduce_scatter dp"), false));
  // Exact mode, three ranks: leaves go to the owners of their parts, and the sums are gathered.
  const DataParallel leaves{.dp = 3, .num_passes = 2, .is_exact = true, .groups = 2};
  EXPECT_TRUE(all(first_outputs_add(leaves, "all_to_all dp"), true));
  EXPECT_TRUE(all(first_outputs_add(leaves, "all_gather dp"), false));
}

TEST(MemoryPicture, NoBufferCoversAnother) {
  std::mt19937 random(8);
  for (int i = 0; i < 12; ++i) {
    const Plan plan =
        make_plan(training_graph(random_choice(&random)), {&ref_kernels(), 1, 1 + i % 2});
    const std::vector<Buffer> buffers = step_buffers(plan);
    for (const Buffer& a : buffers) {
      EXPECT_LE(a.offset + a.bytes, plan.memory.step_bytes) << a.name;
      EXPECT_LE(a.first, a.last) << a.name;
      for (const Buffer& b : buffers) {
        if (&a == &b || a.last < b.first || b.last < a.first) continue;
        EXPECT_TRUE(a.offset + a.bytes <= b.offset || b.offset + b.bytes <= a.offset)
            << a.name << " and " << b.name;
      }
    }
  }
}

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST(MemoryPicture, HasABoxWithAName) {
  const Plan plan = tiny_plan(1);
  const std::string svg = draw_memory(plan, "dp=2 & <tp=1>");
  size_t kept = 0;
  for (const Place& p : plan.memory.places) kept += p.region == Place::Region::kPersistent;
  EXPECT_EQ(count(svg, "<title>"), step_buffers(plan).size() + kept);
  for (const char* part : {"<svg xmlns=", "dp=2 &amp; &lt;tp=1&gt;", "embed#grad", "optimizer",
                           "forward", "backward", "optimizer states", "</svg>"}) {
    EXPECT_NE(svg.find(part), std::string::npos) << part;
  }
  EXPECT_EQ(count(svg, "<rect "),
            count(svg, "</rect>") + count(svg, "/>\n") - count(svg, "<line "));
  EXPECT_EQ(count(svg, "nan"), 0u);
}

TEST(MemoryPicture, CanBeEmpty) {
  const Plan plan = make_plan(Graph(), {&ref_kernels(), 1, 1});
  EXPECT_NE(draw_memory(plan, "none").find("</svg>"), std::string::npos);
}

}  // namespace
}  // namespace weft
