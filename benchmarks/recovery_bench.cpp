// benchmarks/recovery_bench.cpp: what ranks ask other nodes' agents for when a run goes back to its
// snapshots.
//
// recovery_bench NUM_RANKS PER_NODE TENSORS: as many slot services as there are nodes, in this
// process, and ranks that open the snapshots, a few at a time. Of all ranks, kMostRanks are
// measured. Three ways:
//   each   the layout of every rank of other nodes, one question for each (as it was)
//   node   all that any rank holds is needed (shard: none, zero1): one question per node
//   own    the rank's own slot has all that it needs (zero3): none
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <ctime>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "net/slot_client.h"
#include "tests/train/slots_of_nodes.h"

namespace weft::testing {
namespace {

constexpr int kMostRanks = 8, kAtOnce = 4;

struct Nodes {
  SlotsOfNodes slots;
  int num_ranks, per_node;
};

void ask_each(Nodes& nodes, int rank) {
  StoredTensors tensors;
  for (int node = 0; node < nodes.num_ranks / nodes.per_node; ++node) {
    if (node == rank / nodes.per_node) continue;
    SlotClient client(nodes.slots.service_of(node).endpoint(), nodes.slots.secret(), 60'000);
    for (int r = 0; r < nodes.per_node; ++r) {
      const std::string layout = client.layout(node, r, 7).value();
      merge_tensors(tensors, index_from_json(parse_json(layout, "a layout"), "a layout"));
    }
  }
}

void open(Nodes& nodes, int rank, bool needs_all) {
  const RankPlace place = nodes.slots.place(rank);
  RemoteSlots others(place);
  static_cast<void>(open_snapshots(
      place, 7, needs_all ? nodes.slots.all_slices() : nodes.slots.slices(rank), &others));
}

double cpu_s() {
  timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Processor seconds of each of the ranks and of those that answer it, in the mean.
double measure(int num_ranks, const std::function<void(int rank)>& recover) {
  const int measured = std::min(num_ranks, kMostRanks);
  std::atomic<int> next = 0;
  std::vector<std::thread> threads;
  const double begun = cpu_s();
  for (int i = 0; i < kAtOnce; ++i)
    threads.emplace_back([&] {
      for (int k = next++; k < measured; k = next++) recover(k * (num_ranks / measured));
    });
  for (std::thread& thread : threads) thread.join();
  return (cpu_s() - begun) / measured;
}

int run(const std::vector<std::string>& words) {
  if (words.size() != 4) {
    fmt::print("usage: recovery_bench NUM_RANKS PER_NODE TENSORS\n");
    return 2;
  }
  const int num_ranks = std::stoi(words[1]), per_node = std::stoi(words[2]);
  const std::filesystem::path secret =
      std::filesystem::temp_directory_path() / fmt::format("recovery_bench.{}", ::getpid());
  Nodes nodes{SlotsOfNodes(secret, num_ranks / per_node, per_node, std::stoi(words[3])), num_ranks,
              per_node};
  nodes.slots.take(7);
  const size_t layout = nodes.slots.slots_of(0).layout(0).size();
  const int others = num_ranks - per_node, other_nodes = others / per_node;
  fmt::print("{} ranks, {} per node, {} tensors, a layout has {} bytes\n", num_ranks, per_node,
             words[3], layout);
  const auto show = [&](const char* way, int64_t questions, int64_t layouts, double seconds) {
    fmt::print(
        "{}: {} questions and {:.1f} MB per rank, {} questions in all, {:.2f} ms of CPU "
        "per rank\n",
        way, questions, 1e-6 * static_cast<double>(layouts) * static_cast<double>(layout),
        questions * num_ranks, 1e3 * seconds);
  };
  show("each", others, others, measure(num_ranks, [&](int rank) { ask_each(nodes, rank); }));
  show("node", other_nodes, others, measure(num_ranks, [&](int r) { open(nodes, r, true); }));
  show("own", 0, 0, measure(num_ranks, [&](int rank) { open(nodes, rank, false); }));
  std::filesystem::remove(secret);
  return 0;
}

}  // namespace
}  // namespace weft::testing

int main(int argc, char** argv) { return weft::testing::run({argv, argv + argc}); }
