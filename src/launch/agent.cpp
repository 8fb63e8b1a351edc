// launch/agent.cpp: the agent's loop.
#include "launch/agent.h"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "base/printable.h"
#include "launch/cores.h"
#include "launch/memory_counts.h"
#include "launch/node_agent.h"
#include "launch/node_start_check.h"
#include "net/regroup.h"

namespace weft {
namespace {

using std::chrono::milliseconds;

constexpr int kAgentPollMs = 50, kParkPollMs = 2;
constexpr milliseconds kBeatEvery{1000};
constexpr int64_t kTryMs = 3000;  // between looks for a signal, while it connects
constexpr int kLeastMs = 200;     // between two attempts

std::string host_name() {
  char name[256] = {};
  ::gethostname(name, sizeof name - 1);
  return printable_line(name);
}

std::string random_agent_id() {
  std::string id;
  for (const uint8_t byte : random_nonce()) id += fmt::format("{:02x}", byte);
  return id;
}

}  // namespace

Agent::Agent(const AgentOptions& options)
    : options_(options), secret_(Secret::from_file(options.secret_file)), id_(random_agent_id()) {}

int Agent::run() {
  for (;;) {
    if (!connect()) return 128 + received_signal_;
    try {
      return serve();
    } catch (const PeerError& e) {
      drop_ranks();
      forget_previous();
      if (options_.is_first) throw;
      log_warning("{}; joining again", e.what());
    }
  }
}

bool Agent::connect() {
  const auto end = Clock::now() + milliseconds(options_.join_ms);
  num_closed_ = 0;
  for (;;) {
    const auto left = (end - Clock::now()) / milliseconds(1);
    const auto why = try_connect(std::clamp<int64_t>(left, kLeastMs, kTryMs));
    if (!why) return has_joined_ = true;
    if (Clock::now() + milliseconds(kLeastMs) >= end) give_up(*why);
    pollfd wanted{signals_.fd(), POLLIN, 0};
    ::poll(&wanted, 1, kLeastMs);
    if (const auto code = handle_signals()) return false;
  }
}

// A supervisor that ends closes connections as one with another secret does. Which it was shows the
// next attempt, or that this agent was known before.
std::optional<std::string> Agent::try_connect(int64_t deadline_ms) {
  is_foreign_ = false;
  try {
    channel_ = std::make_unique<Channel>(Channel::connect(parse_endpoint(options_.join), secret_,
                                                          Identity{kSupervisorService},
                                                          node_message_bounds(), deadline_ms));
    return std::nullopt;
  } catch (const ClosedHandshake& e) {
    if (!has_joined_ && ++num_closed_ > 1) throw;
    return "it closes connections during the handshake: it ends, or its secret is another one";
  } catch (const NoHandshake& e) {
    is_foreign_ = true;
    return e.what();
  } catch (const PeerError& e) {
    const std::string why = e.what();
    return why.substr(why.rfind(": ") + 2);
  }
}

void Agent::give_up(const std::string& why) const {
  const double seconds = 1e-3 * static_cast<double>(options_.join_ms);
  if (is_foreign_)
    throw PeerError(fmt::format("no run of weft answers at {} within {:.0f} s: {}", options_.join,
                                seconds, why),
                    "the connection was accepted: is another program listening there, or does the "
                    "run's process stand still?");
  throw PeerError(fmt::format("the supervisor at {} cannot be reached within {:.0f} s: {}",
                              options_.join, seconds, why),
                  "is `weft train` running there, and does its launch.interface belong to a "
                  "network that this node reaches?");
}

int Agent::serve() {
  service_ = std::make_unique<SlotService>(channel_->local_host(), secret_);
  send(NodeMessage::kHello, Hello{options_.host.empty() ? host_name() : options_.host, ::getpid(),
                                  static_cast<int64_t>(usable_cores().size()), options_.is_first,
                                  service_->endpoint(), id_}
                                .write());
  beat_at_ = Clock::now();
  begin_lease();
  for (;;) {
    wait();
    if (const auto code = handle_signals()) return *code;
    channel_->flush();
    while (const auto frame = channel_->try_receive()) {
      if (const auto code = handle(*frame)) return *code;
    }
    if (ranks_) {
      ranks_->pump();
      reap();
      check_unkillable();
    }
    if (ranks_ && !are_held_) {
      advance_fetch();
      free_previous();
      advance_parking();
      look_for_hung();
    }
    beat();
    keep_lease();
  }
}

void Agent::wait() {
  const int events = POLLIN | (channel_->wants_to_write() ? POLLOUT : 0);
  std::vector<pollfd> wanted = {{signals_.fd(), POLLIN, 0},
                                {channel_->fd(), static_cast<short>(events), 0}};
  std::vector<int> pipes;
  if (ranks_) ranks_->add_descriptors(&pipes);
  for (const int fd : pipes) wanted.push_back({fd, POLLIN, 0});
  const bool is_hurried =
      is_parking() || fetch_ || (ranks_ && ranks_->world().has_previous_slots());
  ::poll(wanted.data(), wanted.size(), is_hurried ? kParkPollMs : kAgentPollMs);
}

// The supervisor decides what a signal means for the run; an agent without ranks, and without slots
// that the next layout needs, just leaves.
std::optional<int> Agent::handle_signals() {
  for (const ArrivedSignal& signal : signals_.take()) {
    if (signal.number == SIGCHLD) continue;
    const bool is_first = received_signal_ == 0;
    received_signal_ = signal.number;
    if (!is_anyone_running() && !previous_.own) return 128 + signal.number;
    if (is_first) send(NodeMessage::kSignal, write_number(signal.number));
  }
  return std::nullopt;
}

std::optional<int> Agent::handle(const Frame& frame) {
  switch (static_cast<NodeMessage>(frame.kind)) {
    case NodeMessage::kWelcome:
      if (!options_.is_first) log_info("joined the run at {}: waiting for work", options_.join);
      return std::nullopt;
    case NodeMessage::kAlive:
      note_answer();
      return std::nullopt;
    case NodeMessage::kStart:
      start(NodeStart::read(frame.payload));
      return std::nullopt;
    case NodeMessage::kKill:
      if (!ranks_ || read_number(frame.payload) != start_.generation) return std::nullopt;
      kill_ranks();
      report_unstarted();
      return std::nullopt;
    case NodeMessage::kStop:
      stop(static_cast<int>(read_number(frame.payload)));
      return std::nullopt;
    case NodeMessage::kPark:
      park(Park::read(frame.payload));
      return std::nullopt;
    case NodeMessage::kResume:
      resume(Resume::read(frame.payload));
      return std::nullopt;
    case NodeMessage::kForget:
      if (has_previous_ranks()) drop_ranks();
      forget_previous();
      return std::nullopt;
    case NodeMessage::kLeave:
      return leave(Verdict::read(frame.payload));
    default:
      throw PeerError(fmt::format("{}: a message of kind {}, which only agents send",
                                  channel_->peer(), frame.kind));
  }
}

void Agent::start(const NodeStart& start) {
  if (is_anyone_running())
    throw PeerError("the supervisor starts a generation while another one runs");
  drop_ranks();
  if (!start.is_from_previous) forget_previous();
  start_ = start;
  was_finishing_ = was_opened_ = has_reported_parked_ = false;
  stop_signal_ = 0;
  try {
    check_node_start(start);
    job_ = {};
    job_.num_ranks = static_cast<int>(start.ranks_per_node);
    job_.argv = start.argv;
    job_.program = options_.program;
    job_.threads = static_cast<int>(start.threads);
    job_.deadline_ms = start.deadline_ms;
    job_.env = start.env;
    job_.has_snapshots = start.has_snapshots;
    job_.watches_hangs = true;
    job_.unkillable_ms = options_.unkillable_ms;
    job_.park_ms = options_.park_ms;
    job_.describe_call = options_.describe_call;
    job_.node = {static_cast<int>(start.node * start.ranks_per_node),
                 static_cast<int>(start.num_nodes * start.ranks_per_node), start.store,
                 channel_->local_host(), options_.secret_file};
    if (!options_.is_first) {
      job_.forward = [this](int rank, bool is_error, const std::string& line) {
        send(NodeMessage::kLine, OutputLine{rank, is_error, line}.write());
      };
      const int first = job_.node->first_rank, last = first + job_.num_ranks - 1;
      log_info("node {} of {}: starting rank{}", start.node, start.num_nodes,
               first == last ? fmt::format(" {}", first) : fmt::format("s {} to {}", first, last));
    }
    ranks_ = std::make_unique<LocalRanks>(job_);
    watch_ = std::make_unique<RankWatch>(job_, *ranks_);
    share_lease();
    if (start.has_saved) ranks_->world().note_saved();
    ranks_->world().set_store(start.store);
    ranks_->world().set_run_generation(start.generation);
    if (start.has_snapshots) expect_deaths();
    if (start.is_from_previous) return start_from_previous();
    if (start.step >= 0) return begin_fetch();
    for (int r = 0; r < ranks_->size(); ++r) ranks_->start(r);
  } catch (const PeerError&) {
    throw;
  } catch (const Error& e) {
    drop_ranks();
    const std::string hint = e.hint().empty() ? "" : fmt::format(" ({})", e.hint());
    if (!options_.is_first)
      log_warning("this node cannot start its ranks: {}{}", printable_line(e.what()), hint);
    send(NodeMessage::kRefused,
         Verdict{start.generation, e.exit_code(), printable_line(e.what() + hint)}.write());
  }
}

void Agent::drop_ranks() {
  fetch_.reset();
  parking_.reset();
  kept_.reset();
  if (service_) {
    service_->show(start_.node, nullptr);
    service_->keep(node_before(), nullptr);
  }
  watch_.reset();
  ranks_.reset();
  are_held_ = false;
}

void Agent::stop(int signal) {
  stop_signal_ = signal;
  // Only the first node knows whether there is anything to save; others are asked if there is.
  if (ranks_ && start_.node > 0) static_cast<void>(ranks_->world().begin_saving());
  const bool saves = ranks_ && ranks_->world().request_stop(signal);
  if (ranks_ && !saves) ranks_->kill_all();
  send(NodeMessage::kStopping, write_number(saves ? 1 : 0));
}

void Agent::reap() {
  for (const int r : ranks_->reap()) {
    const LocalRanks::Process& rank = (*ranks_)[r];
    RankEnd end;
    end.generation = start_.generation;
    end.rank = ranks_->number(r);
    if (WIFSIGNALED(rank.status))
      end.signal = WTERMSIG(rank.status);
    else
      end.exit_code = WEXITSTATUS(rank.status);
    end.was_killed = rank.was_killed;
    std::string words = ranks_->world().failure(r).value_or("");
    if (words.empty() && rank.err) words = rank.err->last_line();
    end.words = printable_message(words);
    end.has_waited = ranks_->world().has_waited();
    const bool is_stopped =
        end.exit_code == kRegroupExit || (stop_signal_ != 0 && end.exit_code == 128 + stop_signal_);
    if (end.signal == 0 && (end.exit_code == 0 || is_stopped)) {
      ranks_->world().note_ended(r);
    } else {
      ranks_->world().abort(
          fmt::format("rank {} has ended: {}", end.rank, printable_line(end.words)));
    }
    beat_at_ = Clock::now();
    beat();  // how far it was, before its end is judged
    send(NodeMessage::kEnded, end.write());
  }
}

void Agent::beat() {
  const bool is_finishing = ranks_ && ranks_->world().is_finishing();
  const bool is_opened = ranks_ && ranks_->world().is_opened();
  const bool is_new = is_finishing != was_finishing_ || is_opened != was_opened_;
  if (Clock::now() < beat_at_ && !is_new) return;
  was_finishing_ = is_finishing;
  was_opened_ = is_opened;
  beat_at_ = Clock::now() + kBeatEvery;
  Beat now;
  now.generation = start_.generation;
  now.is_finishing = is_finishing;
  if (ranks_) {
    now.step = ranks_->world().last_step();
    now.has_saved = ranks_->world().has_saved();
    now.has_stepped = ranks_->world().has_stepped();
    now.is_opened = is_opened;
    // Of this node besides its ranks' own: also the copies for the node before, and the agent.
    now.segment_bytes =
        ranks_->shared_bytes() + allocated_bytes(kept_ ? kept_->fd() : -1) + previous_bytes();
    now.shared_bytes = now.segment_bytes + count_pages(::getpid()).anonymous_bytes;
    now.ranks = status_of_ranks();
  }
  asked_ms_.push_back(boot_ms());
  send(NodeMessage::kBeat, now.write());
}

std::vector<RankStatus> Agent::status_of_ranks() const {
  std::vector<RankStatus> all;
  for (int r = 0; r < ranks_->size(); ++r) {
    const LocalRanks::Process& process = (*ranks_)[r];
    RankStatus rank{process.pid, process.is_running, ranks_->world().heartbeat(r).read()};
    const PageCounts pages = process.is_running ? count_pages(process.pid) : PageCounts{};
    rank.sign.at_ms = std::max<int64_t>(0, monotonic_ms() - rank.sign.at_ms);
    rank.resident_bytes = pages.resident_bytes;
    rank.anonymous_bytes = pages.anonymous_bytes;
    all.push_back(rank);
  }
  return all;
}

// The run goes on without this node, which may join again. Its connection ends first: the
// supervisor is not to wait for what is left here.
void Agent::check_unkillable() {
  const auto stuck = ranks_->find_unkillable();
  if (!stuck) return;
  const std::string words = ranks_->describe_unkillable(*stuck);
  channel_->shut_down();
  throw PeerError(words);
}

int Agent::leave(const Verdict& verdict) {
  drop_ranks();
  forget_previous();
  const bool is_well = verdict.exit_code == 0 || verdict.exit_code > 128;
  if (!options_.is_first && is_well) log_info("{}", verdict.words);
  if (!options_.is_first && !is_well) log_error("{}", verdict.words);
  return verdict.exit_code;
}

int run_agent(const AgentOptions& options) { return Agent(options).run(); }

}  // namespace weft
