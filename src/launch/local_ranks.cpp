// launch/local_ranks.cpp: a process per rank, each with its share of the cores.
#include "launch/local_ranks.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <fstream>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "base/process_stat.h"
#include "launch/cores.h"
#include "launch/memory_counts.h"
#include "launch/rank_context.h"
#include "launch/start_rank.h"
#include "net/kept_lock.h"

namespace weft {
namespace {

std::vector<std::string> own_arguments() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  if (words.empty()) throw RunError("cannot read this process's arguments from /proc/self/cmdline");
  return words;
}

}  // namespace

LocalRanks::LocalRanks(const JobOptions& options)
    : options_(options),
      first_rank_(options.node ? options.node->first_rank : 0),
      num_ranks_(options.node ? options.node->num_ranks : options.num_ranks),
      argv_(options.argv.empty() ? own_arguments() : options.argv) {
  const auto num_cores = static_cast<int64_t>(usable_cores().size());
  WorldOptions world;
  world.num_ranks = options.num_ranks;
  world.deadline_ms = options.deadline_ms;
  world.spin = int64_t{options.num_ranks} * std::max(1, options.threads) <= num_cores;
  world_ = ShmWorld::create(world);
  if (options.has_snapshots) slots_ = SnapshotSlots::create(options.num_ranks);
  ranks_.resize(static_cast<size_t>(options.num_ranks));
}

LocalRanks::~LocalRanks() {
  kill_all();
  for (int r = 0; r < size(); ++r) {
    Process& rank = ranks_[static_cast<size_t>(r)];
    while (rank.is_running && ::waitpid(rank.pid, &rank.status, WNOHANG) == 0) {
      if (is_unkillable(rank)) {
        log_error("{}; it is left", describe_unkillable(r));
        break;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
}

bool LocalRanks::is_unkillable(const Process& rank) const {
  return rank.is_running && rank.was_killed &&
         monotonic_ms() - rank.killed_ms > options_.unkillable_ms;
}

std::optional<int> LocalRanks::find_unkillable() const {
  for (int r = 0; r < size(); ++r) {
    if (is_unkillable((*this)[r])) return r;
  }
  return std::nullopt;
}

std::string LocalRanks::describe_unkillable(int r) const {
  const ProcessStat stat = read_process_stat((*this)[r].pid).value_or(ProcessStat{});
  return fmt::format(
      "rank {}, process {}, was killed and has not ended within {} s (state {}): it waits for a "
      "disk or a device that does not answer",
      number(r), (*this)[r].pid, options_.unkillable_ms / 1000, stat.state);
}

void LocalRanks::start(int r) {
  const std::vector<int> cores = usable_cores();
  const std::vector<std::vector<int>> shares = divide_cores(cores, size());
  const int share = std::max(1, static_cast<int>(cores.size()) / size());
  RankStart start;
  start.rank = number(r);
  start.num_ranks = num_ranks_;
  start.threads = options_.threads > 0 ? options_.threads : share;
  start.world_fd = world_->fd();
  if (slots_) start.slots_fd = slots_->fd();
  if (start.rank == 0) {  // which holds the run's directory
    lock_keeper_.hand_on();
    start.lock_fd = lock_keeper_.fd();
  }
  start.program = options_.program;
  start.argv = argv_;
  start.env = options_.env;
  if (options_.node) start.env.merge(variables_of(*options_.node));
  // An agent's ranks inherit it (FirstAgent).
  if (!options_.node) start.env[kRunPidVariable] = std::to_string(::getpid());
  start.input = options_.input;
  // With more threads than its share of cores, the system places them.
  if (!shares.empty() && start.threads <= share) start.cores = shares[static_cast<size_t>(r)];
  start.pipe_output = start.rank > 0;
  world_->heartbeat(r).clear();
  const StartedRank started = start_rank(start);
  Process& rank = ranks_[static_cast<size_t>(r)];
  rank = {};
  rank.pid = started.pid;
  rank.is_running = true;
  if (started.out < 0) return;
  rank.out = make_prefixer(start.rank, started.out, 1);
  rank.err = make_prefixer(start.rank, started.err, 2);
}

std::unique_ptr<LinePrefixer> LocalRanks::make_prefixer(int rank, int from, int to) const {
  if (!options_.forward)
    return std::make_unique<LinePrefixer>(from, to, fmt::format("[rank {}] ", rank));
  return std::make_unique<LinePrefixer>(
      from, [forward = options_.forward, rank, to](const std::string& line) {
        forward(rank, to == 2, line);
      });
}

std::vector<int> LocalRanks::reap() {
  std::vector<int> ended;
  for (int r = 0; r < size(); ++r) {
    Process& rank = ranks_[static_cast<size_t>(r)];
    if (!rank.is_running) continue;
    const pid_t found = ::waitpid(rank.pid, &rank.status, WNOHANG);
    if (found < 0 && errno == ECHILD) rank.status = SIGKILL;  // it ended while its stack was read
    if (found == 0 || (found < 0 && errno != ECHILD)) continue;
    rank.is_running = false;
    ended.push_back(r);
    if (rank.out) rank.out->finish();
    if (rank.err) rank.err->finish();
  }
  return ended;
}

void LocalRanks::kill(int r) {
  Process& rank = ranks_[static_cast<size_t>(r)];
  if (!rank.is_running || rank.was_killed) return;
  rank.was_killed = true;
  rank.killed_ms = monotonic_ms();
  ::kill(rank.pid, SIGKILL);
}

void LocalRanks::kill_all() {
  for (int r = 0; r < size(); ++r) kill(r);
}

void LocalRanks::send_all(int signal) {
  for (const Process& rank : ranks_) {
    if (rank.is_running) ::kill(rank.pid, signal);
  }
}

bool LocalRanks::is_any_running() const {
  return std::any_of(ranks_.begin(), ranks_.end(), [](const auto& r) { return r.is_running; });
}

int64_t LocalRanks::shared_bytes() const {
  return allocated_bytes(world_->fd()) + allocated_bytes(slots_ ? slots_->fd() : -1);
}

void LocalRanks::add_descriptors(std::vector<int>* descriptors) const {
  for (const Process& rank : ranks_) {
    for (const LinePrefixer* pipe : {rank.out.get(), rank.err.get()}) {
      if (pipe != nullptr && pipe->fd() >= 0) descriptors->push_back(pipe->fd());
    }
  }
}

void LocalRanks::pump() {
  for (Process& rank : ranks_) {
    if (rank.out) rank.out->pump();
    if (rank.err) rank.err->pump();
  }
}

void LocalRanks::finish_output() {
  for (Process& rank : ranks_) {
    if (rank.out) rank.out->finish();
    if (rank.err) rank.err->finish();
  }
}

}  // namespace weft
