// launch/agent_table.cpp: one thread, many channels.
#include "launch/agent_table.h"

#include <poll.h>
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/log.h"
#include "net/heartbeat.h"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kMaxRefusals = 20;  // that are logged: strangers must not fill the terminal
constexpr std::chrono::milliseconds kDismiss{1000};
constexpr std::chrono::milliseconds kLookEvery{100};  // for silence, at all agents
constexpr std::chrono::milliseconds kMostPerTurn{1000};

}  // namespace

std::string JoinedAgent::name() const {
  return hello ? fmt::format("{} ({})", hello->host, channel.peer()) : channel.peer();
}

AgentTable::AgentTable(const std::string& host, const std::string& port, const Secret& secret,
                       int64_t lost_ms)
    : acceptor_(host, port, secret, Identity{kSupervisorService}, node_message_bounds()),
      poll_(::epoll_create1(EPOLL_CLOEXEC)),
      lost_after_(lost_ms) {
  ensure(poll_.fd() >= 0, "cannot create an epoll descriptor for agents");
}

void AgentTable::wait(int fd, int timeout_ms) {
  std::vector<pollfd> wanted = {{fd, POLLIN, 0}, {poll_.fd(), POLLIN, 0}};
  acceptor_.add_descriptors(&wanted);
  const int until_ms = acceptor_.until_deadline_ms();
  if (until_ms >= 0) timeout_ms = std::min(timeout_ms, until_ms);
  ::poll(wanted.data(), wanted.size(), timeout_ms);
}

// The first event of a channel comes at once, since it can be written to.
void AgentTable::accept() {
  for (Channel& channel : acceptor_.accept_known()) {
    JoinedAgent& agent = agents_.emplace_back(JoinedAgent{std::move(channel), now_});
    epoll_event event{};
    event.events = EPOLLIN | EPOLLOUT | EPOLLET;
    event.data.ptr = &agent;
    if (::epoll_ctl(poll_.fd(), EPOLL_CTL_ADD, agent.channel.fd(), &event) != 0)
      lose(agent, fmt::format("it cannot be watched: {}", std::strerror(errno)));
  }
  for (const std::string& refusal : acceptor_.take_refusals()) {
    if (++num_refusals_ <= kMaxRefusals) log_warning("a connection was refused: {}", refusal);
  }
}

void AgentTable::lose(JoinedAgent& agent, const std::string& why) {
  const std::string prefix = agent.channel.peer() + ": ";  // name() has it
  agent.lost = why.starts_with(prefix) ? why.substr(prefix.size()) : why;
  if (!agent.dropped.empty()) agent.lost = agent.dropped;
  ++num_lost_;
}

void AgentTable::drop(JoinedAgent& agent, const Verdict& verdict) {
  agent.dropped = verdict.words;
  send(agent, NodeMessage::kLeave, verdict.write());
}

void AgentTable::count_time() {
  const auto now = Clock::now();
  const auto passed = std::chrono::duration_cast<std::chrono::milliseconds>(now - turned_);
  turned_ += passed;  // not `now`: what is less than a millisecond counts in the next turn
  now_ += std::min(passed, kMostPerTurn);
}

void AgentTable::receive(const Receive& handle) {
  count_time();
  accept();
  std::array<epoll_event, 256> events;
  int count = 0;
  do {
    count = ::epoll_wait(poll_.fd(), events.data(), static_cast<int>(events.size()), 0);
    for (int i = 0; i < count; ++i) {
      JoinedAgent& agent = *static_cast<JoinedAgent*>(events[static_cast<size_t>(i)].data.ptr);
      if (!agent.lost.empty()) continue;
      try {
        read(agent, handle);
      } catch (const PeerError& e) {
        if (agent.lost.empty()) lose(agent, e.what());
      }
    }
  } while (count == static_cast<int>(events.size()));
  look_for_silence();
}

void AgentTable::look_for_silence() {
  if (now_ - looked_ < kLookEvery) return;
  looked_ = now_;
  for (JoinedAgent& agent : agents_) {
    if (agent.lost.empty() && now_ - agent.heard > lost_after_)
      lose(agent, fmt::format("nothing was heard of it for {} s", lost_after_.count() / 1000));
  }
}

void AgentTable::read(JoinedAgent& agent, const Receive& handle) {
  agent.channel.flush();
  while (const auto frame = agent.channel.try_receive()) {
    const bool is_dropped = !agent.dropped.empty();
    if (!is_dropped) agent.heard = now_;
    const auto kind = static_cast<NodeMessage>(frame->kind);
    const bool is_first = kind == NodeMessage::kHello || kind == NodeMessage::kDrop;
    if (is_first == agent.hello.has_value())
      throw PeerError(agent.hello ? "a second hello" : "a message before its hello");
    if (frame->kind >= static_cast<uint8_t>(NodeMessage::kWelcome))
      throw PeerError("a message that only supervisors send");
    if (kind == NodeMessage::kHello) agent.hello = Hello::read(frame->payload);
    if (kind == NodeMessage::kBeat) {
      agent.beat = Beat::read(frame->payload);
      for (RankStatus& rank : agent.beat.ranks)  // of this machine's clock, not an age
        rank.sign.at_ms = monotonic_ms() - rank.sign.at_ms;
      if (!is_dropped) queue_message(&agent.channel, NodeMessage::kAlive);
    }
    handle(agent, *frame);
  }
}

void AgentTable::send(JoinedAgent& to, NodeMessage kind, const std::string& payload) {
  if (!to.lost.empty()) return;
  try {
    queue_message(&to.channel, kind, payload);
  } catch (const PeerError& e) {
    lose(to, e.what());
  }
}

std::vector<JoinedAgent*> AgentTable::known() {
  std::vector<JoinedAgent*> found;
  for (JoinedAgent& agent : agents_) {
    if (agent.lost.empty() && agent.hello) found.push_back(&agent);
  }
  return found;
}

std::vector<JoinedAgent*> AgentTable::usable() {
  std::vector<JoinedAgent*> found = known();
  std::erase_if(found, [](const JoinedAgent* agent) {
    return !agent->unfit.empty() || !agent->dropped.empty();
  });
  return found;
}

std::vector<JoinedAgent> AgentTable::take_lost() {
  std::vector<JoinedAgent> lost;
  if (num_lost_ == 0) return lost;
  num_lost_ = 0;
  for (auto at = agents_.begin(); at != agents_.end();) {
    const auto here = at++;
    if (here->lost.empty()) continue;
    ::epoll_ctl(poll_.fd(), EPOLL_CTL_DEL, here->channel.fd(), nullptr);
    lost.push_back(std::move(*here));
    agents_.erase(here);
  }
  return lost;
}

void AgentTable::dismiss(const Verdict& verdict) {
  for (JoinedAgent& agent : agents_) send(agent, NodeMessage::kLeave, verdict.write());
  const auto end = Clock::now() + kDismiss;
  const auto is_waiting = [](const JoinedAgent& a) { return a.lost.empty(); };
  // They close their end when they have read it.
  while (Clock::now() < end && std::any_of(agents_.begin(), agents_.end(), is_waiting)) {
    wait(-1, 20);
    receive([](JoinedAgent&, const Frame&) {});
  }
}

}  // namespace weft
