// launch/first_agent.h: the agent of the supervisor's own node, as its child.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace weft {

class FirstAgent {
 public:
  // argv: of the agent, without --join and --secret-file. lock_fd: NodeJobOptions's.
  FirstAgent(std::vector<std::string> argv, const std::string& endpoint,
             const std::string& secret_file, int lock_fd = -1);
  ~FirstAgent();  // it and its ranks are gone
  FirstAgent(const FirstAgent&) = delete;
  FirstAgent& operator=(const FirstAgent&) = delete;

  void start();  // in place of one that has ended, if there was one
  bool has_ended();
  // If it is this process: one that was lost may stand still. Its ranks die with it.
  void kill(int64_t pid);

 private:
  std::vector<std::string> argv_;
  int lock_fd_;
  pid_t pid_ = -1;
};

}  // namespace weft
