// launch/agent.h: one node's part of a run: it joins the supervisor and starts ranks for it
// (docs/design/0018-nodes.md).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

namespace weft {

// Set for the agent that the supervisor starts on its own node.
inline constexpr const char* kFirstAgentVariable = "WEFT_FIRST_AGENT";

struct AgentOptions {
  std::string join;                   // "node1:4711"
  std::filesystem::path secret_file;  // of the run
  bool is_first = false;              // the supervisor's child
  std::string host = "";              // what others call this machine; "": its own name
  int64_t join_ms = 60'000;           // to reach the supervisor, also after it was lost
  // After the last beat that the supervisor has answered: the ranks are stopped until it answers; a
  // rank ends by itself, whatever became of its agent.
  int64_t silence_ms = 10'000, lease_ms = 11'000;
  // Of silence after that: it is lost, and the ranks are killed. One second where its machine does
  // not acknowledge what is sent.
  int64_t give_up_ms = 20'000;
  int64_t unkillable_ms = 30'000;  // JobOptions' one: then this node counts as lost
  int64_t park_ms = 10'000;        // JobOptions' one
  std::string program = "/proc/self/exe";
  // JobOptions' one: a rank's last collective in words.
  std::function<std::string(uint64_t call)> describe_call = nullptr;
};

// Tells the run that the node of an agent is lost, though it may still answer: 0, or 2 where the
// run has no such agent. Errors as of run_agent.
[[nodiscard]] int report_lost_node(const AgentOptions& options, const std::string& host,
                                   int64_t pid);

// The run's exit code; 128 + N where signal N ended an agent that waited. PeerError where the
// supervisor cannot be reached, or not again; UserError where the secret or the version differs. No
// rank is left when this returns or throws.
[[nodiscard]] int run_agent(const AgentOptions& options);

}  // namespace weft
