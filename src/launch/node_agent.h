// launch/node_agent.h: the state of an agent (launch/agent.h).
#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launch/agent.h"
#include "launch/copy_fetch.h"
#include "launch/local_ranks.h"
#include "launch/node_messages.h"
#include "launch/park_messages.h"
#include "launch/parking.h"
#include "launch/rank_watch.h"
#include "launch/signal_pipe.h"
#include "net/channel.h"
#include "net/slot_service.h"

namespace weft {

class Agent {
 public:
  explicit Agent(const AgentOptions& options);
  int run();

 private:
  using Clock = std::chrono::steady_clock;
  bool connect();                                               // false: a signal came first
  std::optional<std::string> try_connect(int64_t deadline_ms);  // why not
  [[noreturn]] void give_up(const std::string& why) const;
  int serve();
  void wait();
  std::optional<int> handle_signals();
  std::optional<int> handle(const Frame& frame);
  void start(const NodeStart& start);
  void stop(int signal);
  void reap();
  bool is_parking() const { return parking_ && parking_->has_begun() && !has_reported_parked_; }
  void advance_parking();
  void park(const Park& park);
  void resume(const Resume& resume);
  int64_t node_before() const { return (start_.node + start_.num_nodes - 1) % start_.num_nodes; }
  void begin_fetch();
  void advance_fetch();
  void give_up_fetch(const std::string& why);
  void report_unstarted();
  void send(NodeMessage kind, const std::string& payload = "") {
    queue_message(channel_.get(), kind, payload);
  }
  void expect_deaths();
  void keep_copies();
  void report_hung(int rank, const std::string& text, bool is_first);
  void kill_hung(int rank, bool is_first);
  void look_for_hung();
  void kill_ranks();  // of the generation, showing those that hang
  void drop_ranks();
  void beat();
  std::vector<RankStatus> status_of_ranks() const;
  bool is_anyone_running() const { return ranks_ && ranks_->is_any_running(); }
  int leave(const Verdict& verdict);
  void check_unkillable();
  // The slots of the previous layout (agent_previous.cpp).
  void keep_previous(int64_t step);
  bool has_previous_ranks() const;
  void forget_previous();
  void start_from_previous();
  void free_previous();
  int64_t previous_bytes() const;
  // Leases (agent_lease.cpp).
  void begin_lease();
  void note_answer();
  void share_lease();
  void keep_lease();
  void hold_ranks(bool is_silent);

  const AgentOptions& options_;
  Secret secret_;
  const std::string id_;  // of this process, however often it joins
  SignalPipe signals_;
  std::unique_ptr<Channel> channel_;
  bool has_joined_ = false;  // once
  int num_closed_ = 0;       // connections, during the handshake
  bool is_foreign_ = false;  // the last one was not to a run of weft
  Clock::time_point beat_at_;
  std::deque<int64_t> asked_ms_;  // when beats were sent that are not answered; of boot_ms()
  int64_t answered_ms_ = 0;       // when the last one was sent that is
  int64_t turned_ms_ = 0;         // the loop, of monotonic_ms()
  int64_t silent_ms_ = 0;         // that have passed since it was too long
  bool are_held_ = false;         // the ranks: stopped, until the supervisor answers
  JobOptions job_;
  std::unique_ptr<SlotService> service_;
  std::unique_ptr<LocalRanks> ranks_;
  std::unique_ptr<RankWatch> watch_;  // of ranks_
  std::unique_ptr<Parking> parking_;  // null: ranks end where another one is lost
  bool has_reported_parked_ = false;
  std::shared_ptr<SnapshotSlots> kept_;  // copies of the slots of the node before this one
  struct Previous {
    std::shared_ptr<SnapshotSlots> own, kept;
    int64_t death_ms = 0;  // of the rank or node for which its layout ended
  };
  Previous previous_;                 // empty: nobody needs them
  std::unique_ptr<CopyFetch> fetch_;  // null: the ranks' slots are not being fetched
  int64_t fetch_begin_ms_ = 0;
  NodeStart start_;
  int stop_signal_ = 0;      // that the run was asked to end with
  int received_signal_ = 0;  // by this process
  bool was_finishing_ = false, was_opened_ = false;
};

}  // namespace weft
