// tests/dist/gpu_rank_program.cpp: a run whose ranks are processes that share a fake GPU or, on
// several nodes, have one each and a fake NCCL.
//
// gpu_rank_program RUN.yaml [KEY=VALUE]...: as supervisor it starts itself and records what `weft
// train` would; as rank it trains. HANG ("1 200"): the rank, and the call of its first device, that
// queues work which never ends; KILL: likewise, by which kill -9 ends it. With launch.nodes:
// SECRET_FILE; NCCL_FOLDER, where communicators are (tests/dist/process_nccl.h); the address to
// join is written there as well (endpoint).
// gpu_rank_program agent --join HOST:PORT --secret-file FILE: a node's agent.
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "comm/call.h"
#include "launch/agent.h"
#include "launch/job.h"
#include "launch/node_job.h"
#include "launch/rank_context.h"
#include "tests/dist/process_nccl.h"
#include "tests/dist/queued_kernels.h"
#include "tests/fake_device.h"
#include "train/fault_events.h"
#include "train/trainer.h"

namespace weft::testing {
namespace {

// Its memory can be mapped by other processes, as a GPU's.
class SharedFakeDevice : public FakeDevice {
 public:
  std::byte* allocate(int64_t bytes) override {
    const int fd = ::memfd_create("fake_gpu", MFD_CLOEXEC);
    const int64_t size = std::max<int64_t>(bytes, 1);
    ensure(fd >= 0 && ::ftruncate(fd, size) == 0, "no memory for a fake GPU");
    std::byte* memory = map(fd, size);
    blocks_[memory] = {fd, size};
    return memory;
  }
  void free(std::byte* memory, int64_t) override {
    wait();
    const Block block = blocks_.at(memory);
    ::munmap(memory, static_cast<size_t>(block.bytes));
    ::close(block.fd);
    blocks_.erase(memory);
  }
  Exported export_memory(std::byte* memory) override {
    Exported exported{{}, memory, ::getpid()};
    const Block block = blocks_.at(memory);
    std::memcpy(exported.handle, &block, sizeof block);
    return exported;
  }
  std::byte* import_memory(const Exported& exported) override {
    const Block block = block_of(exported);
    const std::string path = fmt::format("/proc/{}/fd/{}", exported.process, block.fd);
    const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (fd < 0) throw PeerError("the fake GPU's memory of another rank is gone");
    std::byte* memory = map(fd, block.bytes);
    ::close(fd);
    imported_[{exported.process, exported.here}] = memory;
    return memory;
  }
  void drop_memory(const Exported& exported) override {
    const auto found = imported_.find({exported.process, exported.here});
    ::munmap(found->second, static_cast<size_t>(block_of(exported).bytes));
    imported_.erase(found);
  }

 private:
  struct Block {
    int fd;
    int64_t bytes;
  };
  static Block block_of(const Exported& exported) {
    Block block{};
    std::memcpy(&block, exported.handle, sizeof block);
    return block;
  }
  static std::byte* map(int fd, int64_t bytes) {
    void* memory =
        ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ensure(memory != MAP_FAILED, "a fake GPU's memory cannot be mapped");
    return static_cast<std::byte*>(memory);
  }

  std::map<std::byte*, Block> blocks_;
  std::map<std::pair<int64_t, std::byte*>, std::byte*> imported_;
};

std::string text_of(const char* variable) {
  const char* text = std::getenv(variable);
  return text != nullptr ? text : "";
}

// What HANG or KILL says of this rank's first device.
int64_t chosen_call(const char* variable, const RankContext& me) {
  int rank = -1;
  int64_t call = 0;
  std::istringstream(text_of(variable)) >> rank >> call;
  return rank == me.rank && me.world->generation() == 0 ? call : 0;
}

Backend open_fake_gpu(const RankContext& me) {
  auto own = std::make_unique<SharedFakeDevice>();
  if (const int64_t call = chosen_call("HANG", me); call > 0) {
    own->fault = {"any", call, "", me.rank};
    own->hangs = true;
  }
  if (const int64_t call = chosen_call("KILL", me); call > 0) {
    own->fault = {"any", call, "", me.rank};
    own->on_fault = [] { ::kill(::getpid(), SIGKILL); };
  }
  Device* device = own.get();
  return {&queued_cpu_kernels(), device, std::move(own)};
}

int train(const RunFile& file, const RankContext& me) {
  RankPlace place;
  place.rank = me.rank;
  place.world = me.world;
  place.slots = me.slots;
  place.node = me.node;
  place.open_device = [&] { return open_fake_gpu(me); };
  std::unique_ptr<ProcessNccl> nccl;
  if (me.node) nccl = std::make_unique<ProcessNccl>(text_of("NCCL_FOLDER"));
  place.nccl = nccl.get();
  TrainOptions options;
  options.quiet = true;
  return train_rank(file, options, place);
}

int run_nodes(const JobOptions& job, const RunConfig& c, const EventSink& sink) {
  NodeJobOptions nodes;
  nodes.job = job;
  nodes.num_nodes = static_cast<int>(c.launch.nodes);
  nodes.secret_file = text_of("SECRET_FILE");
  nodes.agent_argv = {job.argv[0], "agent"};
  nodes.directory = "/";
  nodes.join_ms = 60'000;
  return run_node_job(nodes, [&](const char* event, int rank, const std::string& text) {
    if (std::string_view(event) == "listening")
      std::ofstream(std::filesystem::path(text_of("NCCL_FOLDER")) / "endpoint") << text << "\n";
    sink(event, rank, text);
  });
}

int run_as_agent(const std::vector<std::string>& words) {
  require(words.size() == 6, "usage: {} agent --join HOST:PORT --secret-file FILE", words[0]);
  AgentOptions options;
  options.join = words[3];
  options.secret_file = words[5];
  options.is_first = std::getenv(kFirstAgentVariable) != nullptr;
  return run_agent(options);
}

// As cmd/train.cpp.
int supervise(const RunFile& file, std::vector<std::string> words) {
  const RunConfig& c = file.config();
  const std::filesystem::path dir = run_dir_of(c, {});
  JobOptions job;
  job.num_ranks = static_cast<int>(c.ranks_per_node());
  job.argv = std::move(words);
  job.threads = 1;
  job.max_restarts = -1;  // a busy machine may have more that look like hangs
  job.has_snapshots = job.watches_hangs = true;
  job.describe_call = describe_latest;
  job.deadline_ms = 1000 * c.launch.hang_timeout_s;
  std::vector<HungRank> hung;
  const EventSink sink = [&](const char* event, int rank, const std::string& text) {
    if (std::string_view(event) == "hung") hung.push_back(report_hang(dir, rank, text));
    if (std::string_view(event) == "died")
      report_death(dir, {rank, text, {}, std::exchange(hung, {})});
  };
  return c.launch.nodes > 1 ? run_nodes(job, c, sink) : run_local_job(job, sink);
}

int run(const std::vector<std::string>& words) {
  require(words.size() >= 2, "usage: {} RUN.yaml [KEY=VALUE]...", words[0]);
  if (words[1] == "agent") return run_as_agent(words);
  const RunFile file(words[1], {words.begin() + 2, words.end()});
  set_log_quiet(true);
  const auto me = RankContext::from_environment();
  return me ? train(file, *me) : supervise(file, words);
}

}  // namespace
}  // namespace weft::testing

int main(int argc, char** argv) {
  try {
    return weft::testing::run({argv, argv + argc});
  } catch (const weft::Error& e) {
    weft::note_rank_failure(e.what());
    std::fprintf(stderr, "error: %s\n", e.what());
    return e.exit_code();
  }
}
