// launch/node_supervisor.h: the state of a supervisor of several nodes (launch/node_job.h).
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "launch/agent_table.h"
#include "launch/first_agent.h"
#include "launch/node_ends.h"
#include "launch/node_job.h"
#include "launch/park_messages.h"
#include "launch/previous_slots.h"
#include "launch/restart_budget.h"
#include "launch/signal_pipe.h"
#include "net/store.h"

namespace weft {

class NodeSupervisor {
 public:
  NodeSupervisor(const NodeJobOptions& options, const EventSink& sink)
      : o_(options),
        sink_(sink),
        secret_(Secret::from_file(options.secret_file)),
        agents_(options.host, options.port, secret_, options.lost_ms),
        nodes_(static_cast<size_t>(options.num_nodes)),
        ends_(options.num_nodes, options.job.num_ranks),
        choice_(
            options.layouts.empty() ? std::vector{NodeLayout{options.num_nodes}} : options.layouts,
            options.fits, options.fewest_nodes),
        layout_(choice_.asked()),
        reported_layout_(choice_.asked()),
        opened_layout_(choice_.asked()),
        budget_(options.job.max_restarts, options.job.restart_reset_steps) {}
  int run();

 private:
  using Clock = std::chrono::steady_clock;
  enum class Phase { kGathering, kRunning, kParking, kClosing };

  void turn();
  void end_on_error(const Error& error);
  void handle_signals();
  void handle_signal(const ArrivedSignal& signal);
  void stop(int signal);
  void ask_to_stop();
  void handle(JoinedAgent& from, const Frame& frame);
  void handle_stopping(bool saves);
  void handle_drop(JoinedAgent& from, const Drop& drop);
  bool was_dropped(const Hello& hello) const;
  bool has_leaving_node();
  void report_spares();
  void handle_end(const JoinedAgent& from, const RankEnd& end);
  void look_for_lost();
  // Whether ranks ran there.
  bool lose(int node, const std::string& words, const char* event = "node_lost");
  void advance();
  // node_gathering.cpp
  void begin_gathering(const std::string& why);
  void gather();
  void gather_fewer();
  int num_nodes_there();
  bool has_fewest();
  void grow();
  void regroup();
  void place(int num_nodes);
  bool is_complete() const;
  void use_layout(const ChosenLayout& chosen);
  void report_choice(const NodeLayout& chosen) const;
  void report_layout();
  void add_layout(JobStatus* status);
  bool has_spare();
  bool may_leave_out(const JoinedAgent& agent);
  void leave_out(JoinedAgent& agent, const Verdict& verdict);
  std::string missing_names();
  std::string join_words() const;
  std::string missing_words();

  void start_generation();
  NodeStart start_of(int node) const;
  // kept_step: from which the next layout continues (node_previous.cpp); -1: agents keep nothing.
  void begin_closing(const std::string& reason, int64_t kept_step = -1);
  void judge();
  void recover(const NodeEnds::Cause& cause);
  bool may_recover();
  // Recovery from memory (launch/node_recovery.cpp).
  void open_store(bool has_previous = false);
  void abort_store(const std::string& reason);
  void ask_to_park(const Park& park);
  void begin_parking(const std::string& reason, bool is_hang);
  void handle_parked(const JoinedAgent& from, Parked parked);
  bool is_rest_parked() const;
  void note_death(const std::string& words);
  void react_to_loss(int node, const std::string& words);
  bool are_all_quiet() const;
  std::string memory_fault() const;
  bool fill_lost_places();
  void warn_of_losses();
  void advance_parking();
  void report_parked_death(const std::optional<NodeEnds::Cause>& cause);
  void resume(int64_t step, const std::optional<NodeEnds::Cause>& cause);
  void count_restart(const std::string& reason);
  void report_death(int rank, const std::string& words) const;
  void warn_of_restart(const std::string& words, const std::string& from) const;

  // Another layout, from memory (launch/node_previous.cpp).
  void keep_previous();
  std::optional<int64_t> previous_step() const;
  void forget_previous();
  std::string give_up_previous(const std::string& why);
  std::optional<int64_t> use_previous(std::string* fault);
  // Asked to stop while nodes are missing.
  bool begin_saving(int64_t step);
  bool is_between_layouts() const;
  void gather_to_save();
  void give_up_waiting();
  bool has_given_up() const { return !given_up_words_.empty(); }
  std::string stop_words() const;
  std::string unsaved_words(const std::string& known = "");  // known: said before it

  void finish(int code, const std::string& words);
  void fail(int rank, const std::string& words, int code);
  void end_failed(int rank, const std::string& words, int code);
  std::string place_of(int rank) const;
  void report_status();
  std::string waiting_words();
  bool is_finishing() const;
  void report(const char* event, int rank, const std::string& text) const {
    if (sink_) sink_(event, rank, text);
  }

  const NodeJobOptions& o_;
  const EventSink& sink_;
  Secret secret_;
  SignalPipe signals_;
  AgentTable agents_;
  std::unique_ptr<FirstAgent> first_;
  std::vector<JoinedAgent*> nodes_;   // null: it has no agent
  std::vector<std::string> dropped_;  // ids of agents that may not come back
  NodeEnds ends_;
  LayoutChoice choice_;
  NodeLayout layout_;                   // of this generation
  NodeLayout reported_layout_;          // the last one that was an event
  NodeLayout opened_layout_;            // the last one in which ranks have loaded the state
  std::string why_;                     // nodes are gathered again
  std::vector<std::string> arguments_;  // of ranks in this layout
  bool has_snapshots_ = false;          // they have slots
  std::unique_ptr<StoreServer> store_;  // of this generation
  Phase phase_ = Phase::kGathering;
  ParkedNodes parked_;                        // of this generation
  std::optional<PreviousSlots> previous_;     // none: the next layout has nothing of them
  std::string source_;                        // of this generation's state; "": of the first one
  std::vector<bool> is_fresh_;                // its agent takes the place of a lost one
  bool has_warned_ = false;                   // that another node is waited for
  bool is_hang_ = false;                      // ranks have parked, and nobody has died so far
  std::string parked_reason_, memory_fault_;  // memory_fault_: why it goes on from storage
  size_t num_warned_ = 0;                     // losses, on the terminal, while all are parked
  bool is_death_reported_ = false;            // of a rank, while all are parked
  bool is_counted_ = false;                   // this generation's end, as a restart
  bool is_free_ = false;                      // it is none: a node could not start
  int num_left_out_ = 0;                      // nodes that could not start
  Clock::time_point grow_at_;                 // not before
  Clock::time_point gather_until_;
  std::optional<Clock::time_point> kill_at_;  // in kClosing
  int64_t generation_ = -1;
  bool has_saved_ = false;
  bool has_first_joined_ = false;
  RestartBudget budget_;
  int64_t last_step_ = 0;
  std::string last_cause_;   // of the last restart
  bool was_opened_ = false;  // the run directory is this run's
  Clock::time_point status_at_;
  int stop_signal_ = 0;         // or kSaveAndEnd
  std::string given_up_words_;  // too few nodes for too long: what memory has is saved; "": not so
  bool is_saving_ = false;      // this generation was started only to save
  int64_t saving_step_ = -1;    // this step
  bool is_noted_ = false;       // the signal, on standard error
  std::optional<int64_t> first_urgent_ms_;
  bool is_early_ = false, is_cut_off_ = false;
  bool is_growing_ = false;  // the ranks were asked to save and end, for a larger layout
  std::optional<int> exit_code_;
};

}  // namespace weft
