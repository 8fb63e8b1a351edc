// launch/restart_budget.h: how many deaths a run survives (launch.max_restarts), and which it has.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace weft {

class RestartBudget {
 public:
  // most: -1: without bound. After reset_steps steps earlier restarts are forgotten; 0: never.
  RestartBudget(int64_t most, int64_t reset_steps) : most_(most), reset_steps_(reset_steps) {}

  // Whether one more is allowed to a run that has reached last_step.
  bool allows(int64_t last_step);
  void count(const std::string& reason, int64_t last_step);
  void correct(const std::string& reason);  // of the last one: it turned out to be another
  void continue_from(int64_t step) { step_ = step; }  // of the last one: good steps count from here

  int64_t most() const { return most_; }
  int64_t used(int64_t last_step) const;
  std::string number() const;  // " (restart 1 of 2)"; empty: there is no bound
  // "; launch.max_restarts=1 is used up (before: rank 2 was killed by SIGKILL at step 12)" where
  // allows() has refused for that reason; else empty.
  std::string spent_words() const;

 private:
  struct Restart {
    std::string reason;
    int64_t step;
  };
  int64_t most_, reset_steps_;
  int64_t step_ = 0;  // from which the last one has continued
  bool is_spent_ = false;
  int64_t count_ = 0;
  std::vector<Restart> restarts_;  // with a bound: all of them
};

}  // namespace weft
