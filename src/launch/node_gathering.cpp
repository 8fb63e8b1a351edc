// launch/node_gathering.cpp: who takes part in the next generation, and in what layout
// (docs/design/0022-elastic.md).
#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "launch/node_supervisor.h"
#include "net/regroup.h"

namespace weft {
namespace {

constexpr int kPeerExit = 75;
// Nodes that come together cause one change of layout.
constexpr std::chrono::milliseconds kSettle{2000};

}  // namespace

// why: nothing at the first start.
void NodeSupervisor::begin_gathering(const std::string& why) {
  phase_ = Phase::kGathering;
  gather_until_ = Clock::now() + std::chrono::milliseconds(o_.join_ms);
  why_ = why;
  is_growing_ = false;
  choice_.begin();
  if (generation_ < 0 || choice_.is_elastic()) return;
  const bool is_short = std::count_if(nodes_.begin() + 1, nodes_.end(),
                                      [](const auto* node) { return node == nullptr; }) > 0;
  const std::vector<JoinedAgent*> known = agents_.known();
  const bool has_spare = std::any_of(known.begin(), known.end(), [](const JoinedAgent* agent) {
    return agent->node < 0 && !agent->hello->is_first;
  });
  if (is_short && !has_spare)
    log_warning("waiting for another node: weft agent --join {} --secret-file {}",
                agents_.endpoint(), o_.secret_file);
}

// Places are filled as agents come. An elastic run is content with fewer: at its first start when
// the time is over or launch.min_nodes are there, later at once.
void NodeSupervisor::gather() {
  const bool is_late = Clock::now() >= gather_until_;
  if (choice_.is_elastic() && (generation_ >= 0 || is_late || has_fewest())) {
    gather_fewer();
  } else {
    place(choice_.asked().num_nodes);
    if (is_complete()) use_layout({choice_.asked(), {}});
  }
  if (phase_ != Phase::kGathering || exit_code_ || !is_late || choice_.is_checking()) return;
  fail(-1, missing_words(), kPeerExit);
}

// The first node's agent is there, or is being started.
int NodeSupervisor::num_nodes_there() {
  const std::vector<JoinedAgent*> known = agents_.known();
  const auto others = std::count_if(known.begin(), known.end(),
                                    [](const JoinedAgent* a) { return !a->hello->is_first; });
  return 1 + static_cast<int>(others);
}

// At the first start: as many as must be there, and no other has just come.
bool NodeSupervisor::has_fewest() {
  if (o_.min_nodes == 0 || num_nodes_there() < o_.min_nodes) return false;
  const std::vector<JoinedAgent*> known = agents_.known();
  return std::none_of(known.begin(), known.end(),
                      [](const JoinedAgent* a) { return Clock::now() - a->joined < kSettle; });
}

void NodeSupervisor::gather_fewer() {
  const auto chosen = choice_.poll(num_nodes_there());
  if (!chosen) return;
  place(chosen->layout.num_nodes);
  if (is_complete()) use_layout(*chosen);
}

void NodeSupervisor::place(int num_nodes) {
  const std::vector<JoinedAgent*> known = agents_.known();
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
    why_ = fmt::format("{} of {} nodes joined{}", agents_.known().size(), choice_.asked().num_nodes,
                       o_.min_nodes > 0 ? "" : fmt::format(" within {} s", o_.join_ms / 1000));
  if (!(chosen.layout == layout_))
    log_warning("{}: {}, instead of {}", why_, chosen.layout.describe(), layout_.describe());
  layout_ = chosen.layout;
  arguments_ = chosen.arguments;
  start_generation();
}

// Where fewer nodes train than were asked for and others wait: the ranks save after this step and
// end, and the next generation has a larger layout.
void NodeSupervisor::grow() {
  if (phase_ != Phase::kRunning || is_growing_ || stop_signal_ != 0 || layout_ == choice_.asked())
    return;
  const JoinedAgent* first = nodes_[0];
  const bool has_stepped =
      first != nullptr && first->beat.generation == generation_ && first->beat.step > 0;
  const auto larger = choice_.largest(num_nodes_there());
  if (!has_stepped || is_finishing() || !larger || larger->num_nodes <= layout_.num_nodes) return;
  std::string names;
  for (const JoinedAgent* agent : agents_.known()) {
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
  for (const std::string& words : ends_.lost_nodes()) report("node_lost", -1, words);
  has_saved_ = true;
  report("continued", -1, "storage");
  begin_gathering(ends_.lost_nodes().empty() ? std::string(why_) : ends_.lost_nodes().front());
}

// When the generation has opened the directory: events of the run can be written.
void NodeSupervisor::report_layout() {
  if (layout_ == reported_layout_) return;
  report("layout", -1,
         fmt::format("{}\n{}\n{}", reported_layout_.describe(), layout_.describe(), why_));
  reported_layout_ = layout_;
}

void NodeSupervisor::add_layout(JobStatus* status) {
  status->num_nodes = layout_.num_nodes;
  status->nodes_asked = choice_.asked().num_nodes;
  if (choice_.is_elastic()) status->layout = layout_.describe();
  for (const JoinedAgent* agent : agents_.known()) status->num_spares += agent->node < 0;
}

// A node that came later: the run that was there without it goes on, as after a loss.
void NodeSupervisor::send_away(JoinedAgent& agent, const Verdict& verdict) {
  log_warning("node {}, {}, cannot start its ranks and is sent away: {}", agent.node, agent.name(),
              verdict.words);
  agents_.send(agent, NodeMessage::kLeave, verdict.write());
  agents_.lose(agent, "it cannot start ranks: " + verdict.words);
}

// First why nodes that were there are not any more.
std::string NodeSupervisor::missing_words() {
  std::string there, lost;
  for (const std::string& words : ends_.lost_nodes()) lost += words + "; ";
  int missing = o_.num_nodes;
  for (const JoinedAgent* agent : agents_.known()) {
    --missing;
    there += fmt::format("{}{}", there.empty() ? "" : ", ", agent->name());
  }
  return fmt::format(
      "{}{} of {} nodes joined within {} s ({}); {} missing: start `weft agent --join {} "
      "--secret-file {}` there, or set launch.nodes{}",
      lost, o_.num_nodes - missing, o_.num_nodes, o_.join_ms / 1000, there,
      missing == 1 ? "one is" : fmt::format("{} are", missing), agents_.endpoint(), o_.secret_file,
      choice_.shortage().empty() ? "" : "; fewer do not fit: " + choice_.shortage());
}

}  // namespace weft
