// launch/node_job.cpp: the loop of a supervisor of several nodes.
#include "launch/node_job.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "launch/agent.h"
#include "launch/agent_table.h"
#include "launch/first_agent.h"
#include "launch/node_ends.h"
#include "launch/signal_pipe.h"
#include "net/store.h"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int kPeerExit = 75;
constexpr int kPollMs = 100;
constexpr int64_t kStoreMs = 2000;

class NodeJob {
 public:
  NodeJob(const NodeJobOptions& options, const EventSink& sink)
      : o_(options),
        sink_(sink),
        secret_(Secret::from_file(options.secret_file)),
        agents_(options.host, options.port, secret_, options.lost_ms),
        nodes_(static_cast<size_t>(options.num_nodes)),
        ends_(options.num_nodes, options.job.num_ranks) {}
  int run();

 private:
  enum class Phase { kGathering, kRunning, kClosing };

  void handle_signals();
  void handle_signal(const ArrivedSignal& signal);
  void stop(int signal);
  void handle(JoinedAgent& from, const Frame& frame);
  void handle_stopping(bool saves);
  void handle_end(const JoinedAgent& from, const RankEnd& end);
  void look_for_lost();
  void advance();
  void gather();
  void start_generation();
  NodeStart start_of(int node) const;
  void begin_closing(const std::string& reason);
  void judge();
  void recover(const NodeEnds::Cause& cause);
  bool may_recover();
  void finish(int code, const std::string& words);
  void fail(int rank, const std::string& words, int code);
  std::string missing_words() const;
  bool is_finishing() const;
  void tell(const char* event, int rank, const std::string& text) const {
    if (sink_) sink_(event, rank, text);
  }

  const NodeJobOptions& o_;
  const EventSink& sink_;
  Secret secret_;
  SignalPipe signals_;
  AgentTable agents_;
  std::unique_ptr<FirstAgent> first_;
  std::vector<JoinedAgent*> nodes_;  // null: it has no agent
  NodeEnds ends_;
  std::unique_ptr<StoreServer> store_;  // of this generation
  Phase phase_ = Phase::kGathering;
  Clock::time_point gather_until_;
  std::optional<Clock::time_point> kill_at_;  // in kClosing
  int64_t generation_ = -1;
  bool has_saved_ = false;
  bool has_first_joined_ = false;
  int64_t num_restarts_ = 0, restarted_step_ = 0, last_step_ = 0;
  int stop_signal_ = 0;
  std::optional<int64_t> first_urgent_ms_;
  bool is_early_ = false, is_cut_off_ = false;
  std::optional<int> exit_code_;
};

int NodeJob::run() {
  tell("listening", -1, agents_.endpoint());
  first_ = std::make_unique<FirstAgent>(o_.agent_argv, agents_.endpoint(), o_.secret_file);
  gather_until_ = Clock::now() + milliseconds(o_.join_ms);
  if (o_.num_nodes > 1) {
    log_info(
        "waiting for {} more node{}; on each of them:\n  weft agent --join {} --secret-file {}",
        o_.num_nodes - 1, o_.num_nodes == 2 ? "" : "s", agents_.endpoint(), o_.secret_file);
  }
  while (!exit_code_) {
    agents_.wait(signals_.fd(), kPollMs);
    handle_signals();
    agents_.receive([this](JoinedAgent& from, const Frame& frame) { handle(from, frame); });
    look_for_lost();
    if (!exit_code_) advance();
  }
  return *exit_code_;
}

// ------------------------------------------------------------------ signals

void NodeJob::handle_signals() {
  for (const ArrivedSignal& signal : signals_.take()) {
    if (signal.number != SIGCHLD) handle_signal(signal);
  }
}

void NodeJob::handle_signal(const ArrivedSignal& signal) {
  if (is_urgent(signal.number)) {
    if (!first_urgent_ms_) first_urgent_ms_ = signal.at_ms;
    if (signal.at_ms - *first_urgent_ms_ > kSameSignalMs && !std::exchange(is_cut_off_, true)) {
      log_error("a second signal, {}: killing the ranks; unsaved progress is lost",
                signal_name(signal.number));
      return begin_closing("a second signal");
    }
  }
  if (stop_signal_ == 0) stop(signal.number);
}

// Whether there is anything to save is known on the first node, which answers kStopping.
void NodeJob::stop(int signal) {
  stop_signal_ = signal;
  tell("stopping", -1, signal_name(signal));
  if (phase_ == Phase::kGathering) {
    write_signal_line(signal, o_.job.early_words);
    return finish(128 + signal, fmt::format("{} ended the run", signal_name(signal)));
  }
  if (nodes_[0] != nullptr) agents_.send(*nodes_[0], NodeMessage::kStop, write_number(signal));
}

// ------------------------------------------------------------------ messages

void NodeJob::handle(JoinedAgent& from, const Frame& frame) {
  switch (static_cast<NodeMessage>(frame.kind)) {
    case NodeMessage::kHello:
      has_first_joined_ = has_first_joined_ || from.hello->is_first;
      agents_.send(from, NodeMessage::kWelcome);
      if (!from.hello->is_first && phase_ != Phase::kGathering)
        log_info("{} has joined as a spare", from.name());
      return;
    case NodeMessage::kBeat:
      if (from.node != 0 || from.beat.generation != generation_) return;
      has_saved_ = has_saved_ || from.beat.has_saved;
      last_step_ = std::max(last_step_, from.beat.step);
      return;
    case NodeMessage::kLine: {
      const OutputLine line = OutputLine::read(frame.payload);
      const std::string text = fmt::format("[rank {}] {}\n", line.rank, line.text);
      [[maybe_unused]] const ssize_t put =
          ::write(line.is_error ? STDERR_FILENO : STDOUT_FILENO, text.data(), text.size());
      return;
    }
    case NodeMessage::kEnded:
      return handle_end(from, RankEnd::read(frame.payload));
    case NodeMessage::kRefused: {
      const Verdict verdict = Verdict::read(frame.payload);
      if (from.node < 0 || verdict.generation != generation_) return;
      ends_.refuse(from.node, fmt::format("node {}, {}: {}", from.node, from.name(), verdict.words),
                   verdict.exit_code);
      return begin_closing("a node cannot start its ranks");
    }
    case NodeMessage::kSignal: {
      const int signal = static_cast<int>(read_number(frame.payload));
      const bool is_stop = std::find(std::begin(kStopSignals), std::end(kStopSignals), signal) !=
                           std::end(kStopSignals);
      if (is_stop && stop_signal_ == 0) {
        log_info("{} was asked to end", from.name());
        stop(signal);
      }
      return;
    }
    case NodeMessage::kStopping:
      if (stop_signal_ != 0 && from.node == 0) handle_stopping(read_number(frame.payload) != 0);
      return;
    default:
      throw PeerError("an unknown message");
  }
}

// The first node's answer to a signal.
void NodeJob::handle_stopping(bool saves) {
  if (!saves) {
    is_early_ = true;
    write_signal_line(stop_signal_, o_.job.early_words);
    return begin_closing("stopped before the first step");
  }
  write_signal_line(stop_signal_, o_.job.noted_words);
  for (JoinedAgent* node : nodes_) {
    if (node != nullptr && node->node > 0)
      agents_.send(*node, NodeMessage::kStop, write_number(stop_signal_));
  }
}

void NodeJob::handle_end(const JoinedAgent& from, const RankEnd& end) {
  if (end.generation != generation_ || end.rank / o_.job.num_ranks != from.node) return;
  ends_.note(end, stop_signal_);
  tell(end.was_killed ? "killed" : "ended", static_cast<int>(end.rank), NodeEnds::describe(end));
  if (ends_.is_well(end.rank)) return;
  if (end.rank != 0 && is_finishing() && ends_.may_pass(end.rank)) return;
  begin_closing(NodeEnds::describe(end));
}

// Rank 0 needs nobody any more.
bool NodeJob::is_finishing() const {
  return nodes_[0] != nullptr && nodes_[0]->beat.is_finishing &&
         nodes_[0]->beat.generation == generation_;
}

// A node that is lost has no ranks any more (NodeJobOptions::lost_ms).
void NodeJob::look_for_lost() {
  for (const JoinedAgent& agent : agents_.take_lost()) {
    if (agent.node < 0) {
      if (agent.hello && !agent.hello->is_first) log_info("{} has left", agent.name());
      continue;
    }
    nodes_[static_cast<size_t>(agent.node)] = nullptr;
    const std::string words =
        fmt::format("node {}, {}, was lost: {}", agent.node, agent.name(), agent.lost);
    if (phase_ == Phase::kGathering) {
      log_warning("{}", words);
      continue;
    }
    ends_.lose(agent.node, words);
    if (agent.node == 0 || !is_finishing()) begin_closing(words);
  }
  if (exit_code_ || !first_->has_ended()) return;
  if (!std::exchange(has_first_joined_, false))
    throw RunError("this node's agent has ended before it joined");
  first_->start();
}

// ------------------------------------------------------------------ generations

void NodeJob::advance() {
  if (phase_ == Phase::kGathering) return gather();
  if (ends_.all_ended()) return judge();
  if (phase_ == Phase::kClosing && kill_at_ && Clock::now() >= *kill_at_) {
    kill_at_.reset();
    for (JoinedAgent* node : nodes_) {
      if (node != nullptr) agents_.send(*node, NodeMessage::kKill, write_number(generation_));
    }
  }
}

void NodeJob::gather() {
  bool is_complete = true;
  for (int n = 0; n < o_.num_nodes; ++n) {
    JoinedAgent*& node = nodes_[static_cast<size_t>(n)];
    if (node != nullptr) continue;
    node = agents_.find_spare(n == 0);
    is_complete = is_complete && node != nullptr;
    if (node == nullptr) continue;
    node->node = n;
    log_info("node {} is {}", n, node->name());
    tell("joined", n, node->name());
  }
  if (is_complete) return start_generation();
  if (Clock::now() < gather_until_) return;
  const std::string words = missing_words();
  log_error("{}", words);
  finish(kPeerExit, words);
}

std::string NodeJob::missing_words() const {
  std::string there;
  int missing = 0;
  for (const JoinedAgent* node : nodes_) {
    if (node == nullptr)
      ++missing;
    else
      there += fmt::format("{}{}", there.empty() ? "" : ", ", node->name());
  }
  return fmt::format(
      "{} of {} nodes joined within {} s ({}); {} missing: start `weft agent --join {} "
      "--secret-file {}` there, or set launch.nodes",
      o_.num_nodes - missing, o_.num_nodes, o_.join_ms / 1000, there,
      missing == 1 ? "one is" : fmt::format("{} are", missing), agents_.endpoint(), o_.secret_file);
}

NodeStart NodeJob::start_of(int node) const {
  NodeStart start;
  start.generation = generation_;
  start.node = node;
  start.num_nodes = o_.num_nodes;
  start.ranks_per_node = o_.job.num_ranks;
  start.threads = o_.job.threads;
  start.deadline_ms = o_.job.deadline_ms;
  start.argv = o_.job.argv;
  start.env = o_.job.env;
  start.directory = o_.directory;
  start.files = o_.files;
  start.marker = o_.marker;
  start.marker_text = o_.marker_text;
  start.store = store_->endpoint();
  start.has_saved = has_saved_;
  return start;
}

void NodeJob::start_generation() {
  ++generation_;
  store_ = std::make_unique<StoreServer>(o_.host, "0", &secret_);
  ends_.clear();
  kill_at_.reset();
  phase_ = Phase::kRunning;
  for (int n = 0; n < o_.num_nodes; ++n)
    agents_.send(*nodes_[static_cast<size_t>(n)], NodeMessage::kStart, start_of(n).write());
  tell("started", -1, fmt::format("generation {}", generation_));
}

// Every rank learns the reason through the store, and has a moment to end by itself.
void NodeJob::begin_closing(const std::string& reason) {
  const bool is_hurried = is_cut_off_ || is_early_;
  if (phase_ == Phase::kClosing && !is_hurried) return;
  if (phase_ == Phase::kGathering) return finish(is_cut_off_ ? 1 : kPeerExit, reason);
  phase_ = Phase::kClosing;
  kill_at_ = Clock::now() + milliseconds(is_hurried ? 0 : o_.job.grace_ms);
  try {
    StoreClient(store_->endpoint(), kStoreMs, &secret_).set(kAbortKey, reason);
  } catch (const Error& e) {
    log_warning("the reason of the end could not be passed on: {}", e.what());
  }
}

// ------------------------------------------------------------------ ends

void NodeJob::judge() {
  if (is_cut_off_) return finish(1, "the run was ended by a second signal");
  if (is_early_)
    return finish(128 + stop_signal_, fmt::format("{} ended the run", signal_name(stop_signal_)));
  const std::optional<NodeEnds::Cause> cause = ends_.cause();
  if (!cause) {
    const bool is_stopped = ends_.has_any_stopped();
    return finish(is_stopped ? 128 + stop_signal_ : 0,
                  is_stopped ? fmt::format("{} ended the run", signal_name(stop_signal_))
                             : "the run has finished");
  }
  if (cause->would_repeat || !may_recover())
    return fail(cause->rank, cause->words, cause->exit_code);
  recover(*cause);
}

void NodeJob::fail(int rank, const std::string& words, int code) {
  log_error("{}", words);
  tell("failed", rank, words);
  finish(code, words);
}

bool NodeJob::may_recover() {
  if (o_.job.max_restarts == 0 || stop_signal_ != 0) return false;
  const int64_t good_steps = last_step_ - restarted_step_;
  if (o_.job.restart_reset_steps > 0 && good_steps >= o_.job.restart_reset_steps) num_restarts_ = 0;
  return o_.job.max_restarts < 0 || num_restarts_ < o_.job.max_restarts;
}

void NodeJob::recover(const NodeEnds::Cause& cause) {
  ++num_restarts_;
  restarted_step_ = last_step_;
  log_warning("{}; continuing from storage{}", cause.words,
              o_.job.max_restarts > 0
                  ? fmt::format(" (restart {} of {})", num_restarts_, o_.job.max_restarts)
                  : "");
  for (const std::string& words : ends_.lost_nodes()) tell("node_lost", -1, words);
  if (cause.rank >= 0) tell("died", cause.rank, cause.words);
  tell("continued", -1, "storage");
  phase_ = Phase::kGathering;
  gather_until_ = Clock::now() + milliseconds(o_.join_ms);
  const bool is_waiting = std::any_of(nodes_.begin() + 1, nodes_.end(),
                                      [](const JoinedAgent* node) { return node == nullptr; }) &&
                          agents_.find_spare(false) == nullptr;
  if (is_waiting)
    log_warning("waiting for another node: weft agent --join {} --secret-file {}",
                agents_.endpoint(), o_.secret_file);
}

void NodeJob::finish(int code, const std::string& words) {
  exit_code_ = code;
  agents_.dismiss({std::max<int64_t>(0, generation_), code, words});
  first_.reset();
}

}  // namespace

int run_node_job(const NodeJobOptions& options, const EventSink& sink) {
  return NodeJob(options, sink).run();
}

}  // namespace weft
