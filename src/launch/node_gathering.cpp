// launch/node_gathering.cpp: who takes part in the next generation, and in what layout
// (docs/design/0022-elastic.md).
#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "launch/node_supervisor.h"
#include "launch/placement.h"
#include "launch/rank_end.h"
#include "net/regroup.h"

namespace weft {
namespace {

// Nodes that come together cause one change of layout.
constexpr std::chrono::milliseconds kSettle{2000};
// After a second node that could not start, growing waits for this long; doubled for each further.
constexpr std::chrono::seconds kRegrow{30};
constexpr int kMostDoublings = 7;  // about an hour

}  // namespace

// why: nothing at the first start.
void NodeSupervisor::begin_gathering(const std::string& why) {
  phase_ = Phase::kGathering;
  gather_until_ = Clock::now() + std::chrono::milliseconds(o_.join_ms);
  why_ = why;
  is_growing_ = false;
  choice_.begin();
  if (generation_ < 0 || choice_.is_elastic() || stop_signal_ != 0) return;
  const bool is_short = std::count_if(nodes_.begin() + 1, nodes_.end(),
                                      [](const auto* node) { return node == nullptr; }) > 0;
  if (is_short && !has_spare())
    log_warning("waiting for another node: weft agent --join {} --secret-file {}",
                agents_.endpoint(), o_.secret_file);
}

bool NodeSupervisor::has_spare() {
  const std::vector<JoinedAgent*> usable = agents_.usable();
  return std::any_of(usable.begin(), usable.end(), [](const JoinedAgent* agent) {
    return agent->node < 0 && !agent->hello->is_first;
  });
}

// Places are filled as agents come. An elastic run is content with fewer: at its first start when
// the time is over or launch.min_nodes are there, later at once.
void NodeSupervisor::gather() {
  if (has_leaving_node()) return;
  // This node's own agent is on its way: on a busy machine it may be slower than a short time-out.
  const bool is_late = has_first_joined_ && Clock::now() >= gather_until_;
  if (stop_signal_ != 0) {
    gather_to_save();
  } else if (choice_.is_elastic() && (generation_ >= 0 || is_late || has_fewest())) {
    gather_fewer();
  } else {
    place(choice_.asked().num_nodes);
    if (is_complete()) use_layout({choice_.asked(), {}});
  }
  if (phase_ != Phase::kGathering || exit_code_ || !is_late || choice_.is_checking()) return;
  if (stop_signal_ == 0 && previous_step()) return give_up_waiting();
  fail(-1, missing_words(), kPeerExit);
}

// The first node's agent is there, or is being started.
int NodeSupervisor::num_nodes_there() {
  const std::vector<JoinedAgent*> usable = agents_.usable();
  const auto others = std::count_if(usable.begin(), usable.end(),
                                    [](const JoinedAgent* a) { return !a->hello->is_first; });
  return 1 + static_cast<int>(others);
}

// At the first start: as many as must be there, and no other has just come.
bool NodeSupervisor::has_fewest() {
  if (o_.min_nodes == 0 || num_nodes_there() < o_.min_nodes) return false;
  const std::vector<JoinedAgent*> usable = agents_.usable();
  return std::none_of(usable.begin(), usable.end(),
                      [](const JoinedAgent* a) { return Clock::now() - a->joined < kSettle; });
}

void NodeSupervisor::gather_fewer() {
  // No rank runs: what the first node's had is freed, in time, for those of the next layout.
  const JoinedAgent* first = nodes_[0];
  const bool has_beat = first != nullptr && first->beat.generation == generation_;
  const auto chosen = choice_.poll(num_nodes_there(), has_beat ? first->beat.segment_bytes : 0);
  if (!chosen) return;
  place(chosen->layout.num_nodes);
  if (is_complete()) use_layout(*chosen);
}

void NodeSupervisor::place(int num_nodes) {
  const std::vector<JoinedAgent*> known = agents_.usable();
  std::vector<PlacedAgent> agents;
  for (const JoinedAgent* agent : known) agents.push_back({agent->hello->is_first, agent->node});
  const std::vector<int> numbers = place_agents(agents, num_nodes);
  nodes_.assign(static_cast<size_t>(num_nodes), nullptr);
  for (size_t i = 0; i < known.size(); ++i) {
    JoinedAgent& agent = *known[i];
    const int before = std::exchange(agent.node, numbers[i]);
    if (agent.node >= 0) nodes_[static_cast<size_t>(agent.node)] = &agent;
    if (before == agent.node) continue;
    if (agent.node < 0) {
      agent.is_known_spare = true;
      log_info("{} waits as a spare", agent.name());
      continue;
    }
    log_info("node {} is {}", agent.node, agent.name());
    report("joined", agent.node, agent.name());
  }
}

bool NodeSupervisor::is_complete() const {
  return std::none_of(nodes_.begin(), nodes_.end(), [](const auto* n) { return n == nullptr; });
}

void NodeSupervisor::use_layout(const ChosenLayout& chosen) {
  if (generation_ < 0 && !(chosen.layout == choice_.asked()))
    why_ =
        fmt::format("{} of {} nodes joined{}", agents_.usable().size(), choice_.asked().num_nodes,
                    o_.min_nodes > 0 ? "" : fmt::format(" within {} s", o_.join_ms / 1000));
  report_choice(chosen.layout);
  if (!chosen.fit.warning.empty())
    log_warning("{}: {}", chosen.layout.describe(), chosen.fit.warning);
  layout_ = chosen.layout;
  arguments_ = chosen.fit.arguments;
  has_snapshots_ = o_.job.has_snapshots && chosen.fit.has_snapshots;
  start_generation();
}

// Why nodes are fewer than before was said when they were lost.
void NodeSupervisor::report_choice(const NodeLayout& chosen) const {
  if (chosen == layout_) return;
  const std::string words = fmt::format("{}, instead of {}", chosen.describe(), layout_.describe());
  if (generation_ >= 0 && chosen.num_nodes < layout_.num_nodes)
    log_warning("continuing with {}", words);
  else if (generation_ < 0)
    log_warning("{}: {}", why_, words);
  else
    log_info("{}: {}", why_, words);
}

// Where fewer nodes train than were asked for and others wait: the ranks save after this step and
// end, and the next generation has a larger layout.
void NodeSupervisor::grow() {
  if (phase_ != Phase::kRunning || is_growing_ || stop_signal_ != 0 || layout_ == choice_.asked())
    return;
  if (Clock::now() < grow_at_) return;
  const JoinedAgent* first = nodes_[0];
  const bool has_stepped =
      first != nullptr && first->beat.generation == generation_ && first->beat.has_stepped;
  const auto larger = choice_.largest(num_nodes_there());
  if (!has_stepped || is_finishing() || !larger || larger->num_nodes <= layout_.num_nodes) return;
  std::string names;
  for (const JoinedAgent* agent : agents_.usable()) {
    if (agent->node >= 0) continue;
    if (Clock::now() - agent->joined < kSettle) return;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", agent->name());
  }
  is_growing_ = true;
  why_ = fmt::format("{} joined", names);
  log_info("{}: saving after this step, then {}", why_, larger->describe());
  agents_.send(*nodes_[0], NodeMessage::kStop, write_number(kRegroup));
}

// All have saved and ended, as they were asked to. This is no restart of the budget.
void NodeSupervisor::regroup() {
  has_saved_ = true;
  report("continued", -1, "storage");
  begin_gathering(ends_.lost_nodes().empty() ? std::string(why_)
                                             : ends_.lost_nodes().front().words);
}

// Before its ranks start, and hence before anything that they record; of the first generation when
// it has opened the directory, since until then there are no events of this run.
void NodeSupervisor::report_layout() {
  if (layout_ == reported_layout_ || !was_opened_) return;
  report("layout", -1,
         fmt::format("{}\n{}\n{}\n{}", reported_layout_.describe(), layout_.describe(), why_,
                     source_));
  reported_layout_ = layout_;
}

void NodeSupervisor::add_layout(JobStatus* status) {
  status->num_nodes = layout_.num_nodes;
  status->nodes_asked = choice_.asked().num_nodes;
  if (choice_.is_elastic()) status->layout = layout_.describe();
  if (choice_.is_elastic()) status->source = source_;
  for (const JoinedAgent* agent : agents_.usable()) status->num_spares += agent->node < 0;
}

// A node that came later, where the run can go on without it: in a smaller layout, or with a spare.
bool NodeSupervisor::may_leave_out(const JoinedAgent& agent) {
  return agent.node > 0 && generation_ > 0 && (choice_.is_elastic() || has_spare());
}

// The run goes on as after a loss, but this is no restart of the budget. The agent stays, so that
// whoever keeps agents running does not start it again and again, and is not asked any more: what
// its node lacks is mended there, and then it is started anew. Where that happens often and in
// vain, each change of layout would cost time: growing waits for longer each time.
void NodeSupervisor::leave_out(JoinedAgent& agent, const Verdict& verdict) {
  const int node = std::exchange(agent.node, -1);
  const std::string words =
      fmt::format("node {}, {}, cannot start its ranks: {}", node, agent.name(), verdict.words);
  log_warning("{}; it is left out until its agent is started again", words);
  agent.unfit = verdict.words;
  if (num_left_out_++ > 0)
    grow_at_ = Clock::now() + kRegrow * (1 << std::min(num_left_out_ - 2, kMostDoublings));
  nodes_[static_cast<size_t>(node)] = nullptr;
  static_cast<void>(lose(node, words, "node_unfit"));
  is_free_ = is_free_ || phase_ == Phase::kRunning;
  if (phase_ != Phase::kClosing) react_to_loss(node, words);
}

// Of a run that does not train for want of nodes.
std::string NodeSupervisor::waiting_words() {
  const bool is_waiting = phase_ == Phase::kGathering || phase_ == Phase::kParking;
  if (!is_waiting || is_complete()) return "";
  std::string there;
  for (const JoinedAgent* agent : agents_.usable())
    there += fmt::format("{}{}", there.empty() ? "" : ", ", agent->name());
  return fmt::format("waiting for nodes: {} of {} joined{}", agents_.usable().size(),
                     choice_.asked().num_nodes, there.empty() ? "" : fmt::format(" ({})", there));
}

// " (n3, n4)": of those that an engine has named.
std::string NodeSupervisor::missing_names() {
  constexpr size_t kMostShown = 16;
  std::vector<std::string> joined;
  for (const JoinedAgent* agent : agents_.usable()) joined.push_back(agent->hello->host);
  const std::vector<std::string> missing = missing_hosts(o_.node_names, joined);
  if (missing.empty()) return "";
  std::string names;
  for (size_t i = 0; i < std::min(missing.size(), kMostShown); ++i)
    names += fmt::format("{}{}", i == 0 ? "" : ", ", missing[i]);
  if (missing.size() > kMostShown) names += fmt::format(", {} more", missing.size() - kMostShown);
  return fmt::format(" ({})", names);
}

// What brings those that are missing.
std::string NodeSupervisor::join_words() const {
  if (!o_.node_names.empty())
    return fmt::format(
        "can they reach {}, do they share the run directory, and what does the log have of their "
        "tasks?",
        agents_.endpoint());
  // This port is closed when anybody reads it; the next start has it again only where it was given.
  const std::string join =
      o_.port == "0"
          ? "start the run again and, on each other node, the `weft agent` that it then prints "
            "(with launch.port set, agents may be started first)"
          : fmt::format("start the run again, and `weft agent --join {} --secret-file {}` there",
                        agents_.endpoint(), o_.secret_file);
  return join + ", or set launch.nodes";
}

// First why nodes that were there are not any more.
std::string NodeSupervisor::missing_words() {
  std::string there, lost;
  for (const NodeEnds::LostNode& one : ends_.lost_nodes()) lost += one.words + "; ";
  int missing = o_.num_nodes;
  for (const JoinedAgent* agent : agents_.usable()) {
    --missing;
    there += fmt::format("{}{}", there.empty() ? "" : ", ", agent->name());
  }
  return fmt::format("{}{} of {} nodes joined within {} s ({}); {} missing{}: {}{}", lost,
                     o_.num_nodes - missing, o_.num_nodes, o_.join_ms / 1000, there,
                     missing == 1 ? "one is" : fmt::format("{} are", missing), missing_names(),
                     join_words(),
                     choice_.shortage().empty() ? "" : "; fewer do not fit: " + choice_.shortage());
}

}  // namespace weft
