// launch/node_job.cpp: nodes are gathered, generations started, ends judged.
#include "launch/node_job.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "launch/node_supervisor.h"
#include "launch/rank_end.h"

namespace weft {
namespace {

using std::chrono::milliseconds;

constexpr int kNodePollMs = 100;
constexpr milliseconds kStatusEvery{1000};

}  // namespace

int NodeSupervisor::run() {
  report("listening", -1, agents_.endpoint());
  first_ =
      std::make_unique<FirstAgent>(o_.agent_argv, agents_.endpoint(), o_.secret_file, o_.lock_fd);
  begin_gathering("");
  if (o_.num_nodes > 1) {
    log_info(
        "waiting for {} more node{}; on each of them:\n  weft agent --join {} --secret-file {}",
        o_.num_nodes - 1, o_.num_nodes == 2 ? "" : "s", agents_.endpoint(), o_.secret_file);
  }
  while (!exit_code_) {
    try {
      turn();
    } catch (const Error& e) {
      if (generation_ < 0) throw;  // nothing has begun
      end_on_error(e);
    } catch (const std::system_error& e) {  // no thread is left
      if (generation_ < 0) throw;
      end_on_error(RunError(e.what()));
    }
  }
  return *exit_code_;
}

void NodeSupervisor::turn() {
  agents_.wait(signals_.fd(), kNodePollMs);
  handle_signals();
  if (exit_code_) return;  // everybody was sent away, and has left
  agents_.receive([this](JoinedAgent& from, const Frame& frame) { handle(from, frame); });
  if (!exit_code_) look_for_lost();
  if (!exit_code_) advance();
  if (!exit_code_) grow();
  report_status();
}

// What this process lacks (a descriptor, a port) ends the run as a failure of a rank does: it is
// recorded, and agents end too instead of joining again. It is no wrong input, which was checked.
void NodeSupervisor::end_on_error(const Error& error) {
  const std::string hint = error.hint().empty() ? "" : fmt::format(" ({})", error.hint());
  const int code = error.exit_code() == kUserExit ? RunError("").exit_code() : error.exit_code();
  fail(-1, fmt::format("the supervisor cannot go on: {}{}", error.what(), hint), code);
}

// ------------------------------------------------------------------ generations

void NodeSupervisor::advance() {
  if (phase_ == Phase::kGathering) return gather();
  if (phase_ == Phase::kParking) return advance_parking();
  if (ends_.all_ended()) return judge();
  if (phase_ == Phase::kRunning && is_rest_parked()) begin_closing("rank 0 has finished");
  if (phase_ == Phase::kClosing && kill_at_ && Clock::now() >= *kill_at_) {
    kill_at_.reset();
    for (JoinedAgent* node : nodes_) {
      if (node != nullptr) agents_.send(*node, NodeMessage::kKill, write_number(generation_));
    }
  }
}

NodeStart NodeSupervisor::start_of(int node) const {
  NodeStart start;
  start.generation = generation_;
  start.node = node;
  start.num_nodes = layout_.num_nodes;
  start.ranks_per_node = o_.job.num_ranks;
  start.threads = o_.job.threads;
  start.deadline_ms = o_.job.deadline_ms;
  start.argv = o_.job.argv;
  start.argv.insert(start.argv.end(), arguments_.begin(), arguments_.end());
  start.env = o_.job.env;
  start.directory = o_.directory;
  start.files = o_.files;
  start.marker = o_.marker;
  start.marker_text = o_.marker_text;
  start.store = store_->endpoint();
  start.has_saved = has_saved_;
  start.has_snapshots = has_snapshots_;
  return start;
}

void NodeSupervisor::start_generation() {
  ++generation_;
  std::string fault;
  const std::optional<int64_t> step = use_previous(&fault);
  if (stop_signal_ != 0 && !step)  // it was started only to save
    return fail(-1, fault + (fault.empty() ? "" : "; ") + unsaved_words(fault), kPeerExit);
  is_saving_ = stop_signal_ != 0;
  saving_step_ = step.value_or(-1);
  open_store(step.has_value());
  is_counted_ = is_free_ = is_death_reported_ = false;
  ends_.begin(layout_.num_nodes);
  parked_.assign(nodes_.size(), std::nullopt);
  kill_at_.reset();
  phase_ = Phase::kRunning;
  if (generation_ > 0) source_ = step ? fmt::format("step {} in memory", *step) : "storage";
  report_layout();
  for (int n = 0; n < layout_.num_nodes; ++n) {
    NodeStart start = start_of(n);
    start.is_from_previous = step.has_value();
    start.step = step.value_or(-1);
    start.last_step = std::max<int64_t>(start.step, last_step_);
    agents_.send(*nodes_[static_cast<size_t>(n)], NodeMessage::kStart, start.write());
  }
  if (stop_signal_ != 0) ask_to_stop();
  report("started", -1, fmt::format("generation {}", generation_));
  report_spares();
}

// Every rank learns the reason through the store, and has a moment to end by itself.
void NodeSupervisor::begin_closing(const std::string& reason, int64_t kept_step) {
  const bool is_hurried = is_cut_off_ || is_early_;
  if (phase_ == Phase::kClosing && !is_hurried) return;
  if (phase_ == Phase::kGathering) return finish(is_cut_off_ ? 1 : kPeerExit, reason);
  phase_ = Phase::kClosing;
  kill_at_ = Clock::now() + milliseconds(is_hurried ? 0 : o_.job.grace_ms);
  abort_store(reason);
  ask_to_park({generation_, reason, false, true, kept_step});
}

// ------------------------------------------------------------------ ends

void NodeSupervisor::judge() {
  if (is_cut_off_) return finish(1, kCutOffWords);
  if (is_early_)
    return finish(128 + stop_signal_, fmt::format("{} ended the run", signal_name(stop_signal_)));
  const std::optional<NodeEnds::Cause> cause = ends_.cause();
  if (!cause) {
    const bool is_stopped = ends_.has_any_stopped();
    if (is_stopped && has_given_up())
      return fail(
          -1, fmt::format("{}; step {}, which memory had, is saved", given_up_words_, saving_step_),
          kPeerExit);
    if (is_stopped && stop_signal_ == 0) return regroup();
    return finish(is_stopped ? 128 + stop_signal_ : 0,
                  is_stopped ? fmt::format("{} ended the run", signal_name(stop_signal_))
                             : "the run has finished");
  }
  // A restart that was counted when ranks began to park may go on; after a stop signal only to save
  // what memory has.
  const bool may_restart =
      (stop_signal_ == 0 || previous_step()) && (is_counted_ || is_free_ || may_recover());
  const bool ends = cause->would_repeat || !may_restart;
  const bool has_to_save = is_saving_ || has_given_up() || (stop_signal_ != 0 && previous_);
  if (ends) {
    std::string more = cause->would_repeat ? "" : budget_.spent_words();
    if (has_to_save) more = "; " + unsaved_words(cause->words);
    log_error("{}{}", place_of(cause->rank), add_before_hint(cause->report, more));
    return end_failed(cause->rank, cause->words + more, cause->exit_code);
  }
  recover(*cause);
}

// "on n2 (10.0.0.2:4711): "; "" where everybody looks first, or where no node is to be named.
std::string NodeSupervisor::place_of(int rank) const {
  const int node = rank < 0 ? 0 : rank / o_.job.num_ranks;
  const JoinedAgent* agent = node == 0 ? nullptr : nodes_[static_cast<size_t>(node)];
  return agent == nullptr ? "" : fmt::format("on {}: ", agent->name());
}

void NodeSupervisor::fail(int rank, const std::string& words, int code) {
  log_error("{}", words);
  end_failed(rank, words, code);
}

void NodeSupervisor::end_failed(int rank, const std::string& words, int code) {
  report("failed", rank, words);
  finish(code, words);
}

bool NodeSupervisor::may_recover() {
  if (stop_signal_ != 0) return false;
  if (is_free_) return true;
  return o_.job.max_restarts != 0 && budget_.allows(last_step_);
}

// A recovery that memory did not allow has ended ranks, but none of them is its cause.
void NodeSupervisor::recover(const NodeEnds::Cause& cause) {
  const std::string fault = std::exchange(memory_fault_, "");
  const std::string died = cause.words + describe_others(ends_.others_than(cause.rank));
  const std::string& words = fault.empty() ? died : fault;
  count_restart(words);
  const std::optional<int64_t> step = previous_step();
  if (stop_signal_ != 0)
    log_warning("{}; {}: saving step {}, which the memory of the other nodes has", words,
                stop_words(), *step);
  else
    warn_of_restart(words, step ? fmt::format("step {}", *step) : o_.job.saved_words());
  if (!fault.empty()) {
    report("recovery_failed", -1, fault);
    reported_layout_ = opened_layout_;  // reported again, with the source of the next attempt
  } else if (cause.rank >= 0 && !is_death_reported_) {
    report_death(cause.rank, died);
  }
  report("continued", -1, step ? std::to_string(*step) : "storage");
  begin_gathering(words);
}

// From the last beats.
void NodeSupervisor::report_status() {
  if (!o_.job.on_status || Clock::now() < status_at_) return;
  status_at_ = Clock::now() + kStatusEvery;
  JobStatus status;
  status.state = phase_ == Phase::kRunning ? "running" : "recovering";
  if (!was_opened_) status.state = "starting";
  if (stop_signal_ != 0) status.state = "stopping";
  status.note = waiting_words();
  status.is_announced = true;
  status.cause = last_cause_;
  status.num_restarts = budget_.used(last_step_);
  status.max_restarts = o_.job.max_restarts;
  status.generation = generation_;
  add_layout(&status);
  for (const JoinedAgent* node : generation_ < 0 ? std::vector<JoinedAgent*>{} : nodes_) {
    std::vector<RankStatus> ranks(static_cast<size_t>(o_.job.num_ranks));
    if (node != nullptr && node->beat.generation == generation_ &&
        node->beat.ranks.size() == ranks.size()) {
      ranks = node->beat.ranks;
      status.shared_bytes += node->beat.shared_bytes;
      status.is_opened = status.is_opened || (node->node == 0 && node->beat.is_opened);
    }
    for (RankStatus& rank : ranks) {
      rank.host = node != nullptr ? node->hello->host : "unknown";
      if (rank.resident_bytes < 0) rank.resident_bytes = rank.anonymous_bytes = 0;
      if (rank.pid < 0) rank.sign.at_ms = monotonic_ms();  // no heartbeat has reported it
      status.ranks.push_back(rank);
    }
  }
  was_opened_ = status.is_opened = was_opened_ || status.is_opened;
  o_.job.on_status(status);
}

void NodeSupervisor::finish(int code, const std::string& words) {
  if (is_cut_off_ && code == 1) report("cut_off", -1, kCutOffWords);
  status_at_ = {};
  report_status();  // the last layout, and all restarts
  exit_code_ = code;
  agents_.dismiss({std::max<int64_t>(0, generation_), code, words});
  first_.reset();
}

int run_node_job(const NodeJobOptions& options, const EventSink& sink) {
  return NodeSupervisor(options, sink).run();
}

}  // namespace weft
