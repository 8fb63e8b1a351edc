// launch/agent_table.h: the supervisor's side of its agents: who has joined, who is lost.
//
// A message costs the same however many agents there are: epoll names the channels on which
// something has happened (edge-triggered, so that all that is there is read).
//
// Silence is measured in time during which this process ran: a turn of its loop counts for a second
// at most. Where it was stopped, or had to wait for a core, no agent is blamed: everything that has
// come meanwhile is read before anybody is judged.
#pragma once

#include <chrono>
#include <functional>
#include <list>
#include <optional>
#include <string>
#include <vector>

#include "launch/node_messages.h"
#include "net/channel_acceptor.h"
#include "net/socket.h"

namespace weft {

struct JoinedAgent {
  Channel channel;
  std::chrono::milliseconds heard;  // when, of AgentTable's time
  std::optional<Hello> hello = std::nullopt;
  int node = -1;                // -1: none, a spare
  bool is_known_spare = false;  // and this was logged
  std::string unfit = "";       // why it could not start ranks; "": it has not been found unable
  Beat beat = {};
  std::string dropped = "";  // why it was asked to leave, and is waited for no more; "": it was not
  std::string lost = "";     // why; "": it is there
  std::chrono::steady_clock::time_point joined = std::chrono::steady_clock::now();

  std::string name() const;  // "node7 (10.0.0.3:4711)"
};

class AgentTable {
 public:
  AgentTable(const std::string& host, const std::string& port, const Secret& secret,
             int64_t lost_ms);

  std::string endpoint() const { return acceptor_.endpoint(); }
  // Waits for messages, for at most this time, or until `fd` is readable.
  void wait(int fd, int timeout_ms);
  // Accepts agents, and hands out what has arrived: of those that have said hello, and hello
  // itself. An agent that breaks the protocol, the connection, or its silence is lost.
  using Receive = std::function<void(JoinedAgent&, const Frame&)>;
  void receive(const Receive& handle);
  void send(JoinedAgent& to, NodeMessage kind, const std::string& payload = "");

  std::list<JoinedAgent>& all() { return agents_; }
  std::vector<JoinedAgent*> known();   // that have said hello, and are there; as they came
  std::vector<JoinedAgent*> usable();  // of these, all that are neither unfit nor dropped
  void lose(JoinedAgent& agent, const std::string& why);
  // Its node is known to be lost. An agent that is still there leaves, and ends its ranks before it
  // closes the connection, by which it is lost. Nothing that it says renews its lease or puts off
  // the end of its silence: it is lost after lost_ms at the latest, as any other.
  void drop(JoinedAgent& agent, const Verdict& verdict);
  std::vector<JoinedAgent> take_lost();  // out of the table
  // Sends everyone kLeave, and waits until they have it, for a second at most.
  void dismiss(const Verdict& verdict);

 private:
  void accept();
  void count_time();
  void read(JoinedAgent& agent, const Receive& handle);
  void look_for_silence();

  ChannelAcceptor acceptor_;
  Socket poll_;                    // an epoll descriptor
  std::list<JoinedAgent> agents_;  // epoll knows them by their address
  const std::chrono::milliseconds lost_after_;
  std::chrono::milliseconds now_{0}, looked_{0};  // looked_: for silence
  std::chrono::steady_clock::time_point turned_ = std::chrono::steady_clock::now();
  int num_lost_ = 0;  // that are still in the table
  int num_refusals_ = 0;
};

}  // namespace weft
