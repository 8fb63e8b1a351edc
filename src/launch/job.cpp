// launch/job.cpp: the supervisor's loop.
#include "launch/job.h"

#include <poll.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "launch/cores.h"
#include "launch/line_prefixer.h"
#include "launch/signal_pipe.h"
#include "launch/start_rank.h"
#include "net/shm_world.h"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kPeerExit = 75;
constexpr int kPollMs = 200;  // also without a signal, in case one was lost

enum class End { kDone, kStopped, kLostPeers, kFailed };

struct RankProcess {
  pid_t pid = -1;
  bool is_running = false;
  bool was_killed = false;  // by us
  int status = 0;
  std::unique_ptr<LinePrefixer> out, err;
};

std::string describe_signal(int number) {
  const char* name = ::sigabbrev_np(number);
  return name != nullptr ? fmt::format("SIG{}", name) : fmt::format("signal {}", number);
}

std::vector<std::string> own_arguments() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  if (words.empty()) throw RunError("cannot read this process's arguments from /proc/self/cmdline");
  return words;
}

class Job {
 public:
  Job(const JobOptions& options, const EventSink& sink);
  ~Job();
  int run();

 private:
  void start();
  void wait();
  void handle_signals();
  bool is_second(const ArrivedSignal& signal);
  void stop_ranks(const ArrivedSignal& signal);
  void reap();
  void judge(const std::vector<int>& ended);
  void begin_end(const std::string& reason);
  void kill_ranks();
  void report_cause();
  End end_of(const RankProcess& rank) const;
  std::string describe_end(int rank) const;
  int exit_code() const;
  bool is_any_running() const;
  void tell(const char* event, int rank, const std::string& text) const {
    if (sink_) sink_(event, rank, text);
  }

  const JobOptions& options_;
  const EventSink& sink_;
  SignalPipe signals_;
  std::shared_ptr<ShmWorld> world_;
  std::vector<RankProcess> ranks_;
  int stop_signal_ = 0;                     // the first one received
  std::optional<int64_t> first_urgent_ms_;  // when the first SIGINT or SIGTERM arrived
  bool is_early_ = false;                   // it arrived when there was nothing to save
  std::optional<int> cause_;                // the rank that failed first
  bool is_reported_ = false;
  bool is_cut_off_ = false;  // a second stop signal arrived before all ranks had ended
  std::optional<Clock::time_point> kill_at_;  // set when the job must end
};

Job::Job(const JobOptions& options, const EventSink& sink) : options_(options), sink_(sink) {
  const auto num_cores = static_cast<int64_t>(usable_cores().size());
  WorldOptions world;
  world.num_ranks = options.num_ranks;
  world.deadline_ms = options.deadline_ms;
  world.spin = int64_t{options.num_ranks} * std::max(1, options.threads) <= num_cores;
  world_ = ShmWorld::create(world);
}

// Also where start or wait throws: no rank may survive.
Job::~Job() {
  kill_ranks();
  for (RankProcess& rank : ranks_) {
    if (rank.is_running) ::waitpid(rank.pid, &rank.status, 0);
  }
}

void Job::start() {
  const std::vector<int> cores = usable_cores();
  const std::vector<std::vector<int>> shares = divide_cores(cores, options_.num_ranks);
  const int share = std::max(1, static_cast<int>(cores.size()) / options_.num_ranks);
  ranks_.resize(static_cast<size_t>(options_.num_ranks));
  for (int r = 0; r < options_.num_ranks; ++r) {
    RankStart start;
    start.rank = r;
    start.num_ranks = options_.num_ranks;
    start.threads = options_.threads > 0 ? options_.threads : share;
    start.world_fd = world_->fd();
    start.program = options_.program;
    start.argv = options_.argv;
    start.input = options_.input;
    // With more threads than its share of cores, the system places them.
    if (!shares.empty() && start.threads <= share) start.cores = shares[static_cast<size_t>(r)];
    start.pipe_output = r > 0;
    const StartedRank started = start_rank(start);
    RankProcess& rank = ranks_[static_cast<size_t>(r)];
    rank.pid = started.pid;
    rank.is_running = true;
    const std::string prefix = fmt::format("[rank {}] ", r);
    if (started.out >= 0) {
      rank.out = std::make_unique<LinePrefixer>(started.out, 1, prefix);
      rank.err = std::make_unique<LinePrefixer>(started.err, 2, prefix);
    }
    tell("started", r, fmt::format("process {}", rank.pid));
  }
}

int Job::run() {
  start();
  while (is_any_running()) {
    wait();
    handle_signals();
    reap();
    if (kill_at_ && Clock::now() >= *kill_at_) kill_ranks();
  }
  for (RankProcess& rank : ranks_) {
    if (rank.out) rank.out->finish();
    if (rank.err) rank.err->finish();
  }
  report_cause();
  return exit_code();
}

// Until a signal arrives, a rank prints, or it is time to kill.
void Job::wait() {
  std::vector<pollfd> wanted = {{signals_.fd(), POLLIN, 0}};
  for (const RankProcess& rank : ranks_) {
    for (const auto* pipe : {rank.out.get(), rank.err.get()}) {
      if (pipe != nullptr && pipe->fd() >= 0) wanted.push_back({pipe->fd(), POLLIN, 0});
    }
  }
  int64_t timeout_ms = kPollMs;
  if (kill_at_) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(*kill_at_ - Clock::now());
    timeout_ms = std::clamp<int64_t>(left.count() + 1, 0, kPollMs);
  }
  ::poll(wanted.data(), wanted.size(), static_cast<int>(timeout_ms));
  for (RankProcess& rank : ranks_) {
    if (rank.out) rank.out->pump();
    if (rank.err) rank.err->pump();
  }
}

void Job::handle_signals() {
  for (const ArrivedSignal& signal : signals_.take()) {
    if (signal.number != SIGCHLD) stop_ranks(signal);
  }
}

// Only SIGINT and SIGTERM count, and not the echo of the first (base/stop.h).
bool Job::is_second(const ArrivedSignal& signal) {
  if (!is_urgent(signal.number)) return false;
  if (!first_urgent_ms_) first_urgent_ms_ = signal.at_ms;
  return signal.at_ms - *first_urgent_ms_ > kSameSignalMs;
}

void Job::stop_ranks(const ArrivedSignal& arrived) {
  const int signal = arrived.number;
  if (is_second(arrived)) {
    if (!std::exchange(is_cut_off_, true))
      log_error("a second signal, {}: killing the ranks; unsaved progress is lost",
                describe_signal(signal));
    kill_ranks();
  }
  if (stop_signal_ != 0) return;
  stop_signal_ = signal;
  tell("stopping", -1, describe_signal(signal));
  is_early_ = !world_->request_stop(signal);
  write_signal_line(signal, is_early_ ? options_.early_words : options_.noted_words);
  if (is_early_) kill_ranks();
}

void Job::reap() {
  std::vector<int> ended;
  for (size_t r = 0; r < ranks_.size(); ++r) {
    RankProcess& rank = ranks_[r];
    if (!rank.is_running || ::waitpid(rank.pid, &rank.status, WNOHANG) != rank.pid) continue;
    rank.is_running = false;
    ended.push_back(static_cast<int>(r));
    if (rank.out) rank.out->finish();
    if (rank.err) rank.err->finish();
    if (const End end = end_of(rank); end == End::kDone || end == End::kStopped)
      world_->note_ended(static_cast<int>(r));
    tell(rank.was_killed ? "killed" : "ended", static_cast<int>(r),
         describe_end(static_cast<int>(r)));
  }
  if (!ended.empty()) judge(ended);
}

// Among ranks that ended together, one that failed by itself comes before one that lost peers.
void Job::judge(const std::vector<int>& ended) {
  const auto find = [&](End kind) -> std::optional<int> {
    for (const int r : ended) {
      const RankProcess& rank = ranks_[static_cast<size_t>(r)];
      if (!rank.was_killed && end_of(rank) == kind) return r;
    }
    return std::nullopt;
  };
  const auto failed = find(End::kFailed), lost = find(End::kLostPeers);
  if (failed && !is_reported_) {
    cause_ = failed;
    report_cause();
  } else if (lost && !cause_ && !kill_at_) {
    cause_ = lost;  // reported when no other fails within the grace period
  }
  if (cause_ && !kill_at_) begin_end(describe_end(*cause_));
}

void Job::begin_end(const std::string& reason) {
  world_->abort(reason);
  kill_at_ = Clock::now() + std::chrono::milliseconds(options_.grace_ms);
}

void Job::kill_ranks() {
  for (RankProcess& rank : ranks_) {
    if (!rank.is_running || rank.was_killed) continue;
    rank.was_killed = true;
    ::kill(rank.pid, SIGKILL);
  }
}

void Job::report_cause() {
  if (!cause_ || is_reported_) return;
  is_reported_ = true;
  log_error("{}", describe_end(*cause_));
  tell("failed", *cause_, describe_end(*cause_));
}

End Job::end_of(const RankProcess& rank) const {
  if (WIFSIGNALED(rank.status)) return End::kFailed;
  const int code = WEXITSTATUS(rank.status);
  if (code == 0) return End::kDone;
  if (stop_signal_ != 0 && code == 128 + stop_signal_) return End::kStopped;
  return code == kPeerExit ? End::kLostPeers : End::kFailed;
}

std::string Job::describe_end(int r) const {
  const RankProcess& rank = ranks_[static_cast<size_t>(r)];
  std::string text =
      WIFSIGNALED(rank.status)
          ? fmt::format("rank {} was killed by {}", r, describe_signal(WTERMSIG(rank.status)))
          : fmt::format("rank {} ended with exit code {}", r, WEXITSTATUS(rank.status));
  std::string words = world_->failure(r).value_or("");
  if (words.empty() && rank.err) words = rank.err->last_line();
  const End end = end_of(rank);
  if (!words.empty() && (end == End::kFailed || end == End::kLostPeers)) text += ": " + words;
  return text;
}

int Job::exit_code() const {
  if (cause_) {
    const int status = ranks_[static_cast<size_t>(*cause_)].status;
    return WIFSIGNALED(status) ? kPeerExit : WEXITSTATUS(status);
  }
  for (const RankProcess& rank : ranks_) {
    if (!rank.was_killed || !WIFSIGNALED(rank.status)) continue;
    if (is_early_) return 128 + stop_signal_;
    if (is_cut_off_) return 1;
  }
  for (const RankProcess& rank : ranks_) {
    if (end_of(rank) == End::kStopped) return 128 + stop_signal_;
  }
  return 0;  // also where a signal arrived too late to stop anything
}

bool Job::is_any_running() const {
  return std::any_of(ranks_.begin(), ranks_.end(), [](const auto& r) { return r.is_running; });
}

}  // namespace

int run_local_job(const JobOptions& options, const EventSink& sink) {
  JobOptions complete = options;
  if (complete.argv.empty()) complete.argv = own_arguments();
  return Job(complete, sink).run();
}

}  // namespace weft
