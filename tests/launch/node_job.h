// tests/launch/node_job.h: a job on several nodes, which are processes of this machine.
#pragma once

#include <fmt/core.h>

#include <memory>

#include "net/secret.h"
#include "tests/program.h"

namespace weft::testing {

class NodeJob : public ::testing::Test {
 protected:
  static constexpr int64_t kLongMs = 30'000;

  NodeJob() { Secret::random().write_new_file(secret()); }
  std::string secret() const { return folder_ / "secret"; }

  // The supervisor of two nodes with two ranks each.
  void train(std::vector<std::string> what, std::map<std::string, std::string> env = {}) {
    what.insert(what.begin(), "2");
    env.insert({{"NODES", "2"}, {"SECRET_FILE", secret()}});
    train_ = start(what, env);
    const std::string begin = "event listening -1 ";
    ASSERT_TRUE(train_->says(begin));
    const std::string text = train_->out();
    const size_t at = text.find(begin) + begin.size();
    endpoint_ = text.substr(at, text.find('\n', at) - at);
  }
  // Each rank of a generation that has that many; times: in as many such generations.
  bool all_train(int num_ranks, int times = 1) const {
    for (int r = 0; r < num_ranks; ++r) {
      if (!train_->says(fmt::format("rank {} trains, {} in all", r, num_ranks), times))
        return false;
    }
    return true;
  }
  std::unique_ptr<Program> join(const std::map<std::string, std::string>& env = {}) {
    return start(agent(secret()), env);
  }
  std::unique_ptr<Program> join_with(const std::string& secret_file) {
    return start(agent(secret_file));
  }
  // The agent of a node that has too little shared memory for ranks.
  std::unique_ptr<Program> join_unfit() {
    StartOptions options = rank_program();
    options.file_bytes = 16 << 20;
    options.prepare = [] { ::signal(SIGXFSZ, SIG_IGN); };
    return std::make_unique<Program>(agent(secret()), options);
  }

  TemporaryFolder folder_;
  std::unique_ptr<Program> train_;
  std::string endpoint_;

 private:
  static StartOptions rank_program() {
    return {.program = WEFT_RANK_PROGRAM, .joins_streams = true};
  }
  std::unique_ptr<Program> start(const std::vector<std::string>& words,
                                 const std::map<std::string, std::string>& env = {}) {
    StartOptions options = rank_program();
    options.env = env;
    return std::make_unique<Program>(words, options);
  }
  std::vector<std::string> agent(const std::string& secret_file) const {
    return {"agent", "--join", endpoint_, "--secret-file", secret_file};
  }
};

}  // namespace weft::testing
