// launch/node_supervisor.cpp: what signals, messages and silence mean for a run on several nodes.
#include "launch/node_supervisor.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "launch/rank_end.h"
#include "net/regroup.h"

namespace weft {
namespace {

constexpr const char* kDroppedWords = "its node was reported as lost";

}  // namespace

// ------------------------------------------------------------------ signals

void NodeSupervisor::handle_signals() {
  for (const ArrivedSignal& signal : signals_.take()) {
    if (signal.number != SIGCHLD) handle_signal(signal);
  }
}

void NodeSupervisor::handle_signal(const ArrivedSignal& signal) {
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

void NodeSupervisor::stop(int signal) {
  stop_signal_ = signal;
  report("stopping", -1, signal_name(signal));
  if (phase_ == Phase::kGathering && !previous_step()) {
    const std::string words = ": stopped; the same command resumes from " + o_.job.saved_words();
    write_signal_line(signal, generation_ < 0 ? o_.job.early_words : words.c_str());
    return finish(128 + signal, fmt::format("{} ended the run", signal_name(signal)));
  }
  const bool waits_for_node = phase_ == Phase::kParking && !is_complete();
  // Else advance_parking() and gather() know more.
  if (!waits_for_node && !is_between_layouts()) ask_to_stop();
}

// Whether there is anything to save is known on the first node, which answers kStopping.
void NodeSupervisor::ask_to_stop() {
  if (nodes_[0] != nullptr)
    agents_.send(*nodes_[0], NodeMessage::kStop, write_number(stop_signal_));
}

// ------------------------------------------------------------------ messages

void NodeSupervisor::handle(JoinedAgent& from, const Frame& frame) {
  switch (static_cast<NodeMessage>(frame.kind)) {
    case NodeMessage::kHello:
      if (was_dropped(*from.hello)) return agents_.drop(from, {0, kPeerExit, kDroppedWords});
      has_first_joined_ = has_first_joined_ || from.hello->is_first;
      agents_.send(from, NodeMessage::kWelcome);
      if (phase_ != Phase::kGathering) report_spares();
      return;
    case NodeMessage::kBeat:
      if (from.node != 0 || from.beat.generation != generation_) return;
      has_saved_ = has_saved_ || from.beat.has_saved;
      last_step_ = std::max(last_step_, from.beat.step);
      if (!from.beat.is_opened) return;
      if (!std::exchange(was_opened_, true)) {  // who keeps earlier events writes them now
        status_at_ = {};
        report_status();
      }
      if (phase_ == Phase::kRunning) forget_previous();  // all have loaded
      report_layout();
      opened_layout_ = layout_;
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
      if (may_leave_out(from)) return leave_out(from, verdict);
      ends_.refuse(from.node, fmt::format("node {}, {}: {}", from.node, from.name(), verdict.words),
                   verdict.exit_code);
      return begin_closing("a node cannot start its ranks");
    }
    case NodeMessage::kParked:
      return handle_parked(from, Parked::read(frame.payload));
    case NodeMessage::kHung: {
      const Hung hung = Hung::read(frame.payload);
      if (hung.generation != generation_ || hung.rank < 0 ||
          hung.rank / o_.job.num_ranks != from.node)
        return;
      ends_.note_hung(hung.rank, hung.text.substr(0, hung.text.find('\n')), hung.is_first);
      return report("hung", static_cast<int>(hung.rank), hung.text);
    }
    case NodeMessage::kSignal: {
      const int signal = static_cast<int>(read_number(frame.payload));
      const bool is_stop = std::find(std::begin(kStopSignals), std::end(kStopSignals), signal) !=
                           std::end(kStopSignals);
      // A node that is shut down may be reported as lost, and is replaced.
      if (is_stop && stop_signal_ == 0 && from.dropped.empty()) {
        log_info("{} was asked to end", from.name());
        stop(signal);
      }
      return;
    }
    case NodeMessage::kDrop:
      return handle_drop(from, Drop::read(frame.payload));
    case NodeMessage::kStopping:
      if (from.node == 0 && (stop_signal_ != 0 || (is_growing_ && phase_ == Phase::kRunning)))
        handle_stopping(read_number(frame.payload) != 0);
      return;
    default:
      throw PeerError("an unknown message");
  }
}

// The first node's answer to a signal.
void NodeSupervisor::handle_stopping(bool saves) {
  if (!saves && stop_signal_ == 0) return begin_closing("the first node had nothing to save");
  if (!saves && previous_) return;  // it has refused to start the ranks that were to save: judge()
  if (!saves) {
    is_early_ = true;
    write_signal_line(stop_signal_, o_.job.early_words);
    return begin_closing("stopped before the first step");
  }
  if (stop_signal_ != 0 && !has_given_up() && !std::exchange(is_noted_, true))
    write_signal_line(stop_signal_, o_.job.noted_words);
  for (JoinedAgent* node : nodes_) {
    if (node != nullptr && node->node > 0)
      agents_.send(*node, NodeMessage::kStop,
                   write_number(stop_signal_ != 0 ? stop_signal_ : kRegroup));
  }
}

// Whoever placed the nodes may know of a loss before weft can: the agent still runs and answers
// where the raylet of a node of Ray has died.
void NodeSupervisor::handle_drop(JoinedAgent& from, const Drop& drop) {
  const auto is_meant = [&](const JoinedAgent* agent) {
    return agent->hello->host == drop.host && agent->hello->pid == drop.pid &&
           !agent->hello->is_first;
  };
  const std::vector<JoinedAgent*> known = agents_.known();
  const auto found = std::find_if(known.begin(), known.end(), is_meant);
  const auto count = std::count_if(known.begin(), known.end(), is_meant);
  Verdict verdict{std::max<int64_t>(0, generation_), kUserExit, ""};
  if (count != 1) {
    verdict.words = fmt::format("{} process {} of {}",
                                count == 0 ? "no agent is" : "two agents are", drop.pid, drop.host);
  } else {
    verdict = {verdict.generation, 0, fmt::format("{} has to leave", (*found)->name())};
    dropped_.push_back((*found)->hello->id);
    agents_.drop(**found, {verdict.generation, kPeerExit, kDroppedWords});
  }
  agents_.send(from, NodeMessage::kLeave, verdict.write());
}

// One that was cut off has not heard of it, and joins again. Another process has another id, also
// where it has the same number, as in a container that was started again.
bool NodeSupervisor::was_dropped(const Hello& hello) const {
  return std::find(dropped_.begin(), dropped_.end(), hello.id) != dropped_.end();
}

// A node that was dropped and may still have ranks. Nobody takes its place before it is lost.
bool NodeSupervisor::has_leaving_node() {
  const std::vector<JoinedAgent*> known = agents_.known();
  return std::any_of(known.begin(), known.end(), [](const JoinedAgent* agent) {
    return !agent->dropped.empty() && agent->node >= 0;
  });
}

void NodeSupervisor::report_spares() {
  for (JoinedAgent& agent : agents_.all()) {
    if (!agent.hello || agent.node >= 0 || agent.hello->is_first) continue;
    if (!agent.unfit.empty() || !agent.dropped.empty()) continue;
    if (!std::exchange(agent.is_known_spare, true))
      log_info("{} has joined as a spare", agent.name());
  }
}

void NodeSupervisor::handle_end(const JoinedAgent& from, const RankEnd& end) {
  if (end.generation != generation_ || end.rank / o_.job.num_ranks != from.node) return;
  ends_.note(end, stop_signal_);
  report(end.was_killed ? "killed" : "ended", static_cast<int>(end.rank), NodeEnds::describe(end));
  if (ends_.is_well(end.rank)) return;
  if (end.rank != 0 && is_finishing() && ends_.may_pass(end.rank)) return;
  const std::string words = NodeEnds::describe(end);
  if (!ends_.is_death(end.rank)) return begin_closing(words);
  // One more to replace: it was found to hang, and its agent has killed it.
  if (phase_ == Phase::kParking && !ends_.may_pass(end.rank)) return;
  note_death(words);
}

// Rank 0 needs nobody any more.
bool NodeSupervisor::is_finishing() const {
  return nodes_[0] != nullptr && nodes_[0]->beat.is_finishing &&
         nodes_[0]->beat.generation == generation_;
}

// At once: who looks at the events meanwhile must not wait for what takes the node's place.
bool NodeSupervisor::lose(int node, const std::string& words, const char* event) {
  const bool had_ranks = ends_.lose(node, words);
  const bool is_part = had_ranks || phase_ != Phase::kRunning;  // else its ranks have done theirs
  if (generation_ >= 0 && is_part) report(event, node * o_.job.num_ranks, words);
  return had_ranks;
}

// A node that is lost has no ranks any more (NodeJobOptions::lost_ms).
void NodeSupervisor::look_for_lost() {
  const std::vector<JoinedAgent> lost = agents_.take_lost();
  for (const JoinedAgent& agent : lost) {  // all, before anything is sent to those that are left
    if (previous_ && agent.hello) previous_->lose(agent.hello->slots);
    if (agent.node >= 0) nodes_[static_cast<size_t>(agent.node)] = nullptr;
  }
  for (const JoinedAgent& agent : lost) {
    if (agent.hello && agent.hello->is_first) first_->kill(agent.hello->pid);
    if (agent.node < 0) {
      if (agent.hello && !agent.hello->is_first) log_info("{} has left", agent.name());
      continue;
    }
    const std::string words =
        fmt::format("node {}, {}, was lost: {}", agent.node, agent.name(), agent.lost);
    const bool had_ranks = lose(agent.node, words);
    if (phase_ == Phase::kGathering) {
      log_warning("{}", words);
      continue;
    }
    const bool is_needed = had_ranks && (agent.node == 0 || !is_finishing());
    if (is_needed || phase_ == Phase::kParking)
      react_to_loss(agent.node, words);
    else
      parked_.at(static_cast<size_t>(agent.node)).reset();
  }
  if (exit_code_ || !first_->has_ended()) return;
  if (!std::exchange(has_first_joined_, false))
    throw RunError("this node's agent has ended before it joined");
  first_->start();
}

}  // namespace weft
