// benchmarks/comm_bench.cpp: collectives of two ranks compared with plain memory copies.
//
// Ranks are processes, as in training. memcpy is measured with both ranks running, in the same
// memory: it is what a perfect collective that moves a tensor once could reach. Gloo, over the
// loopback, is what two machines would use, without the wire.
#include <fmt/core.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "comm/gloo/gloo.h"
#include "comm/shm/shm.h"
#include "net/store.h"

namespace weft {
namespace {

constexpr int kRanks = 2;
constexpr int64_t kLargest = 64 << 20;

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Seconds of one call: the median of several samples, each of enough calls to be measured.
double measure(Comm& comm, int64_t bytes, const std::function<void()>& call) {
  const int calls =
      static_cast<int>(std::clamp<int64_t>((4 << 20) / std::max<int64_t>(bytes, 1), 1, 2000));
  call();
  std::vector<double> samples;
  for (int sample = 0; sample < 9; ++sample) {
    comm.barrier();
    const double start = now_s();
    for (int i = 0; i < calls; ++i) call();
    samples.push_back((now_s() - start) / calls);
  }
  std::sort(samples.begin(), samples.end());
  return samples[samples.size() / 2];
}

std::unique_ptr<Comm> make_gloo(const std::string& store, int rank) {
  GlooOptions options;
  options.rank = rank;
  options.num_ranks = kRanks;
  options.store = store;
  return make_gloo_comm(options);
}

// A markdown table. store: for the columns of Gloo; empty: the build lacks it.
void run_rank(const std::shared_ptr<ShmWorld>& world, const std::string& store, int rank) {
  const auto comm = make_shm_comm(world, rank);
  const auto gloo = store.empty() ? nullptr : make_gloo(store, rank);
  auto* arena = static_cast<char*>(world->take_arena(rank, kRanks * kLargest));
  auto* other = static_cast<char*>(world->take_arena(rank, kRanks * kLargest));
  std::vector<char> own(kLargest, 0);
  std::memset(arena, 0, kRanks * kLargest);
  std::memset(other, 0, kRanks * kLargest);
  std::vector<const char*> names = {"memcpy",       "shm all_reduce", "bf16",
                                    "not in arena", "all_gather",     "reduce_scatter"};
  if (gloo) names.insert(names.end(), {"gloo all_reduce", "all_gather"});
  if (rank == 0) {
    fmt::print("{} ranks; us per call, tensor bytes / time in GB/s; the median of 9\n\n", kRanks);
    fmt::print("| {:>9} ", "bytes");
    for (const char* name : names) fmt::print("| {:>16} ", name);
    fmt::print("|\n|---:");
    for (size_t i = 0; i < names.size(); ++i) fmt::print("|---:");
    fmt::print("|\n");
  }
  for (int64_t bytes : {8, 64, 512, 4 << 10, 32 << 10, 256 << 10, 2 << 20, 16 << 20, 64 << 20}) {
    std::vector<std::function<void()>> calls = {
        [&] { std::memcpy(other, arena, static_cast<size_t>(bytes)); },
        [&] { comm->all_reduce(arena, bytes / 4, Dtype::kF32); },
        [&] { comm->all_reduce(arena, bytes / 2, Dtype::kBf16); },
        [&] { comm->all_reduce(own.data(), bytes / 4, Dtype::kF32); },
        [&] { comm->all_gather(arena, other, bytes); },
        [&] { comm->reduce_scatter(arena, other, bytes / 4 / kRanks, Dtype::kF32); },
    };
    if (gloo) {
      calls.emplace_back([&] { gloo->all_reduce(own.data(), bytes / 4, Dtype::kF32); });
      calls.emplace_back([&] { gloo->all_gather(own.data(), other, bytes); });
    }
    std::string line = fmt::format("| {:>9} ", bytes);
    for (const auto& call : calls) {
      const double s = measure(*comm, bytes, call);
      line += fmt::format("| {:>9.2f} {:>6.2f} ", s * 1e6, static_cast<double>(bytes) / s / 1e9);
    }
    if (rank == 0) fmt::print("{}|\n", line);
  }
}

int run() {
  WorldOptions options;
  options.num_ranks = kRanks;
  options.spin = std::thread::hardware_concurrency() >= kRanks;
  const auto world = ShmWorld::create(options);
  std::fflush(stdout);
  const auto server = has_gloo() ? std::make_unique<StoreServer>() : nullptr;
  const std::string store = server ? server->endpoint() : "";
  std::vector<pid_t> children;
  for (int rank = 0; rank < kRanks; ++rank) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      run_rank(world, store, rank);
      std::fflush(stdout);
      ::_exit(0);
    }
    children.push_back(pid);
  }
  int bad = 0;
  for (const pid_t pid : children) {
    int status = 0;
    ::waitpid(pid, &status, 0);
    bad |= status;
  }
  return bad != 0;
}

}  // namespace
}  // namespace weft

int main() { return weft::run(); }
