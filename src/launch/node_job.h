// launch/node_job.h: a job of ranks on several nodes, supervised from the first
// (docs/design/0018-nodes.md).
//
// The supervisor listens, starts an agent of its own, waits until every node has one, and starts a
// generation of ranks on all of them. Where a rank dies or a node is lost, the next generation goes
// on from the memory of the nodes (docs/design/0021-memory-of-nodes.md), or else from storage.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "launch/job.h"
#include "launch/layout_choice.h"
#include "net/secret.h"

namespace weft {

struct NodeJobOptions {
  JobOptions job;  // of one node: num_ranks of each; argv is needed
  int num_nodes = 2;
  std::vector<std::string> node_names = {};    // where an engine has started agents; empty: unknown
  std::string host = "127.0.0.1", port = "0";  // where it listens
  std::string secret_file;                     // an absolute path; holds the secret
  std::vector<std::string> agent_argv = {"weft", "agent"};  // of the first node's; options follow
  std::map<std::string, std::string> files;                 // NodeStart's
  std::string directory, marker, marker_text;               // likewise
  int lock_fd = -1;  // of the run's lock, which rank 0 gets (net/kept_lock.h); -1: it takes its own
  int64_t join_ms = 300'000;  // for all nodes to have an agent
  int min_nodes = 0;  // the first start does not wait for more, once none has joined for a while
  int64_t lost_ms = 12'000;  // after a node's last beat; more than AgentOptions::lease_ms
  // In which it may continue with fewer nodes, besides that of num_nodes, which comes first; empty:
  // it is not elastic. With fewer than fewest_nodes it does not train, but saves what memory has
  // when it is asked to stop. fits: asked before one of these starts.
  std::vector<NodeLayout> layouts = {};
  int fewest_nodes = 1;
  LayoutCheck fits = nullptr;
};

// As run_local_job. Further events: listening (host:port), joined (a node; rank: its number, -1: a
// spare), node_lost (rank: its first; at once: ranks of other nodes may still write), node_unfit
// (the same of one that is left out, since its ranks could not be started), layout (it
// has changed: before, now, why, and what it continues from ("": the start), a line each). 75 also
// where too few nodes join; the exit code of a node that refuses to start.
[[nodiscard]] int run_node_job(const NodeJobOptions& options, const EventSink& sink);

}  // namespace weft
