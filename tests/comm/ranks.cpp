// tests/comm/ranks.cpp: threads and processes as ranks.
#include "tests/comm/ranks.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <stdexcept>
#include <thread>

#include "base/error.h"
#include "comm/ipc/device_comm.h"
#include "comm/nodes/nodes.h"

namespace weft::testing {
namespace {

using Body = std::function<void(Rank&)>;

constexpr int kDeadlineMs = 120'000;  // of a whole test, far beyond what it needs
constexpr int64_t kArenaBytes = 2 << 20;
constexpr int64_t kStagingBytes = 16 << 10;  // small, so that sums take many pieces

// What the ranks of a test share.
struct Together {
  const RanksOptions& options;
  std::shared_ptr<ShmWorld> world;
  std::unique_ptr<StoreServer> store;
  std::unique_ptr<FakeNccl> nccl;
  std::string endpoint = {};  // of the store; of gloo
  std::vector<std::shared_ptr<ShmWorld>> nodes = {};

  int ranks_per_node() const { return nodes.empty() ? options.num_ranks : nodes[0]->num_ranks(); }

  std::unique_ptr<Comm> make_comm(int rank, Rank* me) const {
    if (!world) return make_solo_comm();
    if (is_on_device(options.back_end)) return make_comm_on_device(make_shm_comm(world, rank), me);
    if (!is_gloo(options.back_end)) return make_shm_comm(world, rank);
    if (nodes.empty()) return make_gloo(rank, nullptr);
    return make_nodes_comm(make_gloo(rank, me->world), make_shm_comm(me->world, me->local_rank));
  }
  std::unique_ptr<Comm> make_gloo(int rank, const std::shared_ptr<ShmWorld>& node) const {
    GlooOptions o;
    o.rank = rank;
    o.num_ranks = options.num_ranks;
    o.store = endpoint;
    o.deadline_ms = options.world.deadline_ms;
    o.chunk_bytes = options.world.chunk_bytes;
    if (node) o.on_abort = [node](const std::string& reason, bool) { node->abort(reason); };
    return make_gloo_comm(o);
  }
  std::unique_ptr<Comm> make_comm_on_device(std::unique_ptr<Comm> host, Rank* me) const {
    me->device = std::make_unique<FakeDevice>();
    me->arena = std::make_unique<FakeArena>(me->device.get(), kArenaBytes);
    const DeviceKernels& kernels = fake_device_kernels();
    if (!nccl) {
      return make_device_comm(std::move(host), me->device.get(), kernels, me->arena->data,
                              kArenaBytes);
    }
    NcclOptions o;
    o.is_exact = true;
    o.staging_bytes = kStagingBytes;
    o.library = nccl.get();
    return make_waiting_comm(
        make_nccl_comm(std::move(host), me->device.get(), kernels, me->arena->data, kArenaBytes, o),
        me->device.get());
  }
  void meanwhile(const std::vector<pid_t>& pids) const {
    if (!options.meanwhile) return;
    const auto abort = [this](const std::string& reason) {
      if (!store) return world->abort(reason);
      StoreClient(endpoint, 10'000).set("abort", reason);
    };
    options.meanwhile(abort, pids);
  }
};

std::string run_one(const Together& together, int rank, const Body& body) {
  try {
    Rank me;
    me.local_rank = rank % together.ranks_per_node();
    me.world = together.nodes.empty()
                   ? together.world
                   : together.nodes[static_cast<size_t>(rank / together.ranks_per_node())];
    me.comm = together.make_comm(rank, &me);
    body(me);
    return "";
  } catch (const std::exception& e) {
    return e.what();
  }
}

std::vector<std::string> run_threads(const Together& together, const Body& body) {
  const int num_ranks = together.options.num_ranks;
  std::vector<std::string> ends(static_cast<size_t>(num_ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < num_ranks; ++rank) {
    threads.emplace_back(
        [&, rank] { ends[static_cast<size_t>(rank)] = run_one(together, rank, body); });
  }
  together.meanwhile({});
  for (std::thread& thread : threads) thread.join();
  return ends;
}

struct Child {
  pid_t pid;
  int pipe;  // from it: how it ended
  int gate;  // to it: the store's endpoint, as a line
};

void write_all(int fd, const std::string& text) {
  if (::write(fd, text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    throw std::runtime_error("write");
}

std::string read_line(int fd) {
  std::string line;
  for (char c = 0; ::read(fd, &c, 1) == 1 && c != '\n';) line += c;
  return line;
}

Child start(Together& together, int rank, const Body& body) {
  int ends[2], gate[2];
  if (::pipe(ends) != 0 || ::pipe(gate) != 0) throw std::runtime_error("pipe");
  const pid_t pid = ::fork();
  if (pid < 0) throw std::runtime_error("fork");
  if (pid > 0) {
    ::close(ends[1]);
    ::close(gate[0]);
    return {pid, ends[0], gate[1]};
  }
  ::close(ends[0]);
  together.endpoint = read_line(gate[0]);
  const std::string end = run_one(together, rank, body);
  const bool written = ::write(ends[1], end.data(), end.size()) == static_cast<ssize_t>(end.size());
  ::_exit(written ? 0 : 1);
}

// Until the pipe closes, which the end of the process does.
std::string finish(const Child& child, std::chrono::steady_clock::time_point deadline) {
  std::string text;
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    pollfd wanted{child.pipe, POLLIN, 0};
    if (::poll(&wanted, 1, static_cast<int>(std::max<int64_t>(0, left.count()))) <= 0) {
      ::kill(child.pid, SIGKILL);
      text = "hangs";
      break;
    }
    char buffer[4096];
    const ssize_t got = ::read(child.pipe, buffer, sizeof buffer);
    if (got <= 0) break;
    text.append(buffer, static_cast<size_t>(got));
  }
  ::close(child.pipe);
  int status = 0;
  ::waitpid(child.pid, &status, 0);
  if (WIFSIGNALED(status) && text != "hangs") return fmt::format("signal {}", WTERMSIG(status));
  if (WIFEXITED(status) && WEXITSTATUS(status) != 0) return "lost";
  return text;
}

void start_store(Together& together) {
  if (!is_gloo(together.options.back_end)) return;
  together.store = std::make_unique<StoreServer>();
  together.endpoint = together.store->endpoint();
}

void make_nodes(Together* together, WorldOptions options) {
  int num_nodes = 2;
  while (num_nodes < options.num_ranks && options.num_ranks % num_nodes != 0) ++num_nodes;
  options.num_ranks = std::max(1, options.num_ranks / num_nodes);
  for (int n = 0; n < num_nodes; ++n) together->nodes.push_back(ShmWorld::create(options));
}

// The store's thread starts after all forks: a child under ASan would inherit a locked allocator
// lock that nobody unlocks.
std::vector<std::string> run_processes(Together& together, const Body& body) {
  std::vector<Child> children;
  std::vector<pid_t> pids;
  for (int rank = 0; rank < together.options.num_ranks; ++rank) {
    children.push_back(start(together, rank, body));
    pids.push_back(children.back().pid);
  }
  start_store(together);
  for (const Child& child : children) {
    write_all(child.gate, together.endpoint + "\n");
    ::close(child.gate);
  }
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(kDeadlineMs);
  together.meanwhile(pids);
  std::vector<std::string> ends;
  for (const Child& child : children) ends.push_back(finish(child, deadline));
  return ends;
}

}  // namespace

std::string name_of(BackEnd back_end) {
  constexpr const char* kNames[] = {"solo",         "shm_threads",    "shm_processes",
                                    "gloo_threads", "gloo_processes", "cuda_ipc",
                                    "nccl",         "nodes"};
  return kNames[static_cast<int>(back_end)];
}

bool is_gloo(BackEnd back_end) {
  return back_end == BackEnd::kGlooThreads || back_end == BackEnd::kGlooProcesses ||
         back_end == BackEnd::kNodesThreads;
}

bool is_on_device(BackEnd back_end) {
  return back_end == BackEnd::kIpcThreads || back_end == BackEnd::kNcclThreads;
}

std::vector<BackEnd> back_ends_of_many() {
  std::vector<BackEnd> all = back_ends_of_the_host();
  all.insert(all.end(), {BackEnd::kIpcThreads, BackEnd::kNcclThreads});
  return all;
}

std::vector<BackEnd> back_ends_of_the_host() {
  std::vector<BackEnd> all = {BackEnd::kThreads, BackEnd::kProcesses};
  if (has_gloo())
    all.insert(all.end(), {BackEnd::kGlooThreads, BackEnd::kGlooProcesses, BackEnd::kNodesThreads});
  return all;
}

RanksOptions small_chunks(BackEnd back_end, int num_ranks) {
  RanksOptions o;
  o.back_end = back_end;
  o.num_ranks = num_ranks;
  o.world.chunk_bytes = 4 << 10;
  return o;
}

char* Rank::take(int64_t bytes, bool in_arena) {
  if (in_arena && device) {
    char* at = reinterpret_cast<char*>(arena->data) + arena_used;
    arena_used += (bytes + 63) / 64 * 64;
    check(arena_used <= kArenaBytes, "a test takes more than the arena of its fake GPU");
    return at;
  }
  if (in_arena && world) return static_cast<char*>(world->take_arena(local_rank, bytes));
  memory.push_back(std::make_unique<char[]>(static_cast<size_t>(bytes) + 1));
  return memory.back().get();
}

std::vector<std::string> run_ranks(const RanksOptions& options, const Body& body) {
  Together together{options, nullptr, nullptr, nullptr};
  if (options.back_end == BackEnd::kSolo) return {run_one(together, 0, body)};
  WorldOptions world_options = options.world;
  world_options.num_ranks = options.num_ranks;
  world_options.spin = options.num_ranks <= static_cast<int>(std::thread::hardware_concurrency());
  together.world = ShmWorld::create(world_options);
  if (options.back_end == BackEnd::kNodesThreads) make_nodes(&together, world_options);
  if (options.back_end == BackEnd::kNcclThreads) together.nccl = std::make_unique<FakeNccl>();
  const bool are_processes =
      options.back_end == BackEnd::kProcesses || options.back_end == BackEnd::kGlooProcesses;
  if (are_processes) return run_processes(together, body);
  start_store(together);
  return run_threads(together, body);
}

void expect_ranks(const RanksOptions& options, const Body& body) {
  const std::vector<std::string> ends = run_ranks(options, body);
  for (size_t rank = 0; rank < ends.size(); ++rank) {
    EXPECT_EQ(ends[rank], "") << "rank " << rank << " of " << ends.size();
  }
}

void check(bool ok, const std::string& what) {
  if (!ok) throw std::runtime_error(what);
}

void check(bool ok, const char* what) {
  if (!ok) throw std::runtime_error(what);
}

}  // namespace weft::testing
