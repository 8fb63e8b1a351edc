// tests/e2e/node_run.h: `weft train --nodes N` and its agents, all on this machine's loopback.
#pragma once

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <memory>
#include <sstream>
#include <vector>

#include "tests/e2e/disturbed_run.h"

namespace weft::testing {

inline const StartOptions kOnLo{.env = {{"WEFT_NODES_ON_LO", "1"}}};

// The first node's program, and the agents of others as they are asked to join.
class NodeRun {
 public:
  NodeRun(const TinyRun& run, const std::string& name, std::vector<std::string> sets,
          int num_nodes = 2, const StartOptions& options = kOnLo)
      : run_(run), name_(name) {
    sets.push_back("name=" + name);
    train_ = std::make_unique<Program>(
        run.words("train", sets, {"--nodes", std::to_string(num_nodes)}), options);
  }
  // In place of the last one, where there was one.
  void join(const StartOptions& options = kOnLo) { agent_ = new_agent(options); }
  // Before ranks start: later it listens for them, too.
  void find_endpoint() {
    if (endpoint_.empty()) {
      EXPECT_TRUE(train_->wait_until([&] { return !(endpoint_ = endpoint()).empty(); }));
    }
  }
  // One more than there are nodes is a spare.
  std::unique_ptr<Program> new_agent(const StartOptions& options = kOnLo) {
    find_endpoint();
    return std::make_unique<Program>(
        std::vector<std::string>{"agent", "--join", endpoint_, "--secret-file", secret(), "--wait",
                                 "5"},
        options);
  }
  std::string secret() const { return run_.dir(name_) / "secret"; }
  Program& train() { return *train_; }
  Program& agent() { return *agent_; }
  // The processes of the ranks of the first node, or of the agent that joined last.
  std::vector<pid_t> ranks_of(int node) const {
    if (node == 1) return children_of(agent_->pid());
    std::vector<pid_t> all;
    for (const pid_t agent : children_of(train_->pid())) {
      for (const pid_t rank : children_of(agent)) all.push_back(rank);
    }
    return all;
  }

 private:
  // The address on which the supervisor listens, from the system: its output is in a file of its
  // own.
  std::string endpoint() const {
    std::istringstream lines(slurp(fmt::format("/proc/{}/net/tcp", train_->pid())));
    const std::string sockets = own_sockets();
    std::string line;
    std::getline(lines, line);
    while (std::getline(lines, line)) {
      std::istringstream words(line);
      std::string sl, local, remote, state, skip, inode;
      words >> sl >> local >> remote >> state;
      for (int i = 0; i < 5; ++i) words >> skip;
      words >> inode;
      if (state != "0A" || sockets.find(fmt::format("socket:[{}]", inode)) == std::string::npos)
        continue;
      return fmt::format("127.0.0.1:{}", std::stoi(local.substr(local.find(':') + 1), nullptr, 16));
    }
    return "";
  }
  std::string own_sockets() const {
    std::string all;
    std::error_code gone;
    for (const auto& entry :
         std::filesystem::directory_iterator(fmt::format("/proc/{}/fd", train_->pid()), gone))
      all += std::filesystem::read_symlink(entry.path(), gone).string() + " ";
    return all;
  }

  const TinyRun& run_;
  std::string name_, endpoint_;
  std::unique_ptr<Program> train_, agent_;
};

}  // namespace weft::testing
