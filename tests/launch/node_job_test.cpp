// tests/launch/node_job_test.cpp: a job on several nodes, which are processes of this machine.
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <thread>

#include "net/secret.h"
#include "tests/io/temporary_folder.h"
#include "tests/launch/spawn.h"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;

class Process {
 public:
  Process(const std::filesystem::path& log, const std::vector<std::string>& words,
          const std::function<void()>& prepare = {})
      : log_(log) {
    std::vector<std::string> all = {WEFT_RANK_PROGRAM};
    all.insert(all.end(), words.begin(), words.end());
    pid_ = testing::spawn(all, log, log, prepare);
  }
  ~Process() {
    if (code_) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }
  void send(int signal) const { ::kill(pid_, signal); }
  std::string text() const {
    std::ostringstream all;
    all << std::ifstream(log_, std::ios::binary).rdbuf();
    return all.str();
  }
  bool says(const std::string& words, int times = 1) {
    return until([&] { return count(words) >= times; });
  }
  int count(const std::string& words) const {
    const std::string all = text();
    int found = 0;
    for (size_t at = all.find(words); at != std::string::npos; at = all.find(words, at + 1))
      ++found;
    return found;
  }
  // The exit code; -N: signal N; 999: it still runs.
  int wait() {
    until([&] {
      int status = 0;
      if (code_ || ::waitpid(pid_, &status, WNOHANG) != pid_) return code_.has_value();
      code_ = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
      return true;
    });
    return code_.value_or(999);
  }

 private:
  static bool until(const std::function<bool()>& holds) {
    for (const auto end = Clock::now() + std::chrono::seconds(40); Clock::now() < end;) {
      if (holds()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return false;
  }
  std::filesystem::path log_;
  pid_t pid_;
  std::optional<int> code_;
};

class NodeJob : public ::testing::Test {
 protected:
  NodeJob() { Secret::random().write_new_file(secret()); }
  std::string secret() const { return folder_ / "secret"; }

  // The supervisor of two nodes with two ranks each.
  void train(const std::vector<std::string>& what,
             const std::map<std::string, std::string>& env = {}) {
    std::vector<std::string> words = {"2"};
    words.insert(words.end(), what.begin(), what.end());
    train_ = std::make_unique<Process>(folder_ / "train", words, [=, this] {
      ::setenv("NODES", "2", 1);
      ::setenv("SECRET_FILE", secret().c_str(), 1);
      for (const auto& [name, value] : env) ::setenv(name.c_str(), value.c_str(), 1);
    });
    ASSERT_TRUE(train_->says("event listening -1 "));
    const std::string text = train_->text(), start = "event listening -1 ";
    const size_t at = text.find(start) + start.size();
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
  std::unique_ptr<Process> join(const std::string& name, std::string secret_file = "") {
    if (secret_file.empty()) secret_file = secret();
    return std::make_unique<Process>(
        folder_ / name,
        std::vector<std::string>{"agent", "--join", endpoint_, "--secret-file", secret_file});
  }

  testing::TemporaryFolder folder_;
  std::unique_ptr<Process> train_;
  std::string endpoint_;
};

TEST_F(NodeJob, RanksOfTwoNodesMeetAndTheirOutputIsForwarded) {
  train({"report"});
  const auto agent = join("agent");
  EXPECT_EQ(train_->wait(), 0) << train_->text();
  EXPECT_EQ(agent->wait(), 0) << agent->text();
  const std::string text = train_->text();
  for (const char* line :
       {"rank 0 of 4 sum 4", "[rank 1] rank 1 of 4 sum 4", "[rank 2] rank 2 of 4 sum 4",
        "[rank 3] rank 3 of 4 sum 4", "[rank 3] whole line\n", "[rank 3] no end of rank 3\n"})
    EXPECT_NE(text.find(line), std::string::npos) << line << "\n" << text;
}

TEST_F(NodeJob, ADeadRankRestartsAllUntilTheBudgetIsSpent) {
  train({"crash", "3"});
  const auto agent = join("agent");
  EXPECT_EQ(train_->wait(), 75);
  EXPECT_EQ(agent->wait(), 75);
  const std::string text = train_->text();
  EXPECT_NE(text.find("event died 3 rank 3 was killed by SIGABRT"), std::string::npos) << text;
  EXPECT_NE(text.find("event started -1 generation 1"), std::string::npos) << text;
  EXPECT_NE(text.find("event failed 3 rank 3 was killed by SIGABRT"), std::string::npos) << text;
  EXPECT_EQ(text.find("generation 2"), std::string::npos) << text;
}

TEST_F(NodeJob, AFailureThatWouldRepeatEndsAll) {
  train({"user_error", "2"});
  const auto agent = join("agent");
  EXPECT_EQ(train_->wait(), 2);
  EXPECT_EQ(agent->wait(), 2);
  const std::string text = train_->text();
  EXPECT_NE(text.find("rank 2 ended with exit code 2: the run file is wrong"), std::string::npos);
  EXPECT_EQ(text.find("generation 1"), std::string::npos) << text;
}

TEST_F(NodeJob, ASignalReachesAllNodes) {
  for (const bool at_agent : {false, true}) {
    train({"train"});
    const auto agent = join(fmt::format("agent{}", at_agent));
    for (const char* line : {"rank 0 trains, 4 in all", "rank 3 trains, 4 in all"})
      ASSERT_TRUE(train_->says(line));
    (at_agent ? *agent : *train_).send(SIGTERM);
    EXPECT_EQ(train_->wait(), 143) << train_->text();
    EXPECT_EQ(agent->wait(), 143) << agent->text();
    for (int r = 0; r < 4; ++r)
      EXPECT_TRUE(train_->says(fmt::format("rank {} saved", r))) << train_->text();
    std::filesystem::remove(folder_ / "train");
  }
}

TEST_F(NodeJob, AnEarlySignalHasNothingToSave) {
  train({"early_stop"});
  const auto agent = join("agent");
  for (int r = 0; r < 4; ++r)
    ASSERT_TRUE(train_->says(fmt::format("rank {} has nothing to save", r)));
  train_->send(SIGINT);
  EXPECT_EQ(train_->wait(), 130);
  EXPECT_EQ(agent->wait(), 130);
}

TEST_F(NodeJob, ASecondSignalEndsAtOnce) {
  train({"ignore_stop", "2"});
  const auto agent = join("agent");
  ASSERT_TRUE(train_->says("rank 0 trains"));
  ASSERT_TRUE(train_->says("hangs"));
  train_->send(SIGINT);
  ASSERT_TRUE(train_->says("finishing the current step, then saving")) << train_->text();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));  // else it is the first one's echo
  train_->send(SIGINT);
  EXPECT_EQ(train_->wait(), 1);
  EXPECT_EQ(agent->wait(), 1);
}

TEST_F(NodeJob, ASpareTakesThePlaceOfAKilledAgent) {
  train({"train"});
  const auto first = join("first");
  ASSERT_TRUE(all_train(4));
  const auto spare = join("spare");
  ASSERT_TRUE(train_->says("has joined as a spare"));
  first->send(SIGKILL);
  EXPECT_EQ(first->wait(), -SIGKILL);
  ASSERT_TRUE(train_->says("event node_lost -1 node 1, "));
  ASSERT_TRUE(spare->says("node 1 of 2: starting ranks 2 to 3")) << spare->text();
  ASSERT_TRUE(train_->says("event started -1 generation 1"));
  ASSERT_TRUE(all_train(4, 2)) << train_->text();
  train_->send(SIGTERM);
  EXPECT_EQ(train_->wait(), 143) << train_->text();
  EXPECT_EQ(spare->wait(), 143);
  for (int r = 0; r < 4; ++r) EXPECT_EQ(train_->count(fmt::format("rank {} saved", r)), 1);
}

// The supervisor learns of both losses at once: the first must not make it talk to the second.
TEST_F(NodeJob, TwoNodesThatAreLostInTheSameMomentAreReplaced) {
  train({"train"}, {{"NODES", "3"}});
  const auto first = join("first"), second = join("second");
  ASSERT_TRUE(all_train(6)) << train_->text();
  const auto third = join("third"), fourth = join("fourth");
  ASSERT_TRUE(third->says("waiting for work") && fourth->says("waiting for work"));
  train_->send(SIGSTOP);
  for (const auto* lost : {&first, &second}) {
    (*lost)->send(SIGKILL);
    EXPECT_EQ((*lost)->wait(), -SIGKILL);
  }
  train_->send(SIGCONT);
  for (const auto* spare : {&third, &fourth})
    ASSERT_TRUE((*spare)->says(" of 3: starting ranks ")) << train_->text();
  EXPECT_TRUE(train_->says("event node_lost -1 node 1, ")) << train_->text();
  EXPECT_TRUE(train_->says("event node_lost -1 node 2, ")) << train_->text();
  ASSERT_TRUE(train_->says("event started -1 generation 1"));
  ASSERT_TRUE(all_train(6, 2)) << train_->text();
  train_->send(SIGTERM);
  EXPECT_EQ(train_->wait(), 143) << train_->text();
}

TEST_F(NodeJob, AnElasticJobContinuesWithFewerNodesAndTheRestWaits) {
  train({"train"}, {{"NODES", "3"}, {"ELASTIC", "31"}});
  const auto first = join("first"), second = join("second");
  ASSERT_TRUE(all_train(6)) << train_->text();
  first->send(SIGKILL);
  EXPECT_EQ(first->wait(), -SIGKILL);
  ASSERT_TRUE(all_train(2)) << train_->text();  // two nodes are not admissible
  EXPECT_TRUE(train_->says(" waits as a spare")) << train_->text();
  EXPECT_TRUE(train_->says("dp=2 on 1 node, instead of dp=6 on 3 nodes")) << train_->text();
  EXPECT_TRUE(train_->says("event layout -1 dp=6 on 3 nodes\ndp=2 on 1 node\nnode "))
      << train_->text();
  train_->send(SIGTERM);
  EXPECT_EQ(train_->wait(), 143) << train_->text();
  EXPECT_EQ(second->wait(), 143);
}

TEST_F(NodeJob, AnElasticJobStartsWithTheNodesThatCame) {
  train({"train"}, {{"NODES", "4"}, {"ELASTIC", "421"}, {"JOIN_MS", "1500"}, {"SHORT", "4"}});
  const auto agent = join("agent"), spare = join("spare");
  ASSERT_TRUE(all_train(4)) << train_->text();
  EXPECT_TRUE(train_->says("3 of 4 nodes joined within 1 s: dp=4 on 2 nodes")) << train_->text();
  train_->send(SIGTERM);
  EXPECT_EQ(train_->wait(), 143) << train_->text();
  EXPECT_EQ(agent->wait(), 143);
  EXPECT_EQ(spare->wait(), 143);
}

TEST_F(NodeJob, AnElasticJobSkipsLayoutsThatDoNotFit) {
  train({"train"}, {{"NODES", "3"}, {"ELASTIC", "321"}, {"SHORT", "2"}});
  const auto first = join("first"), second = join("second");
  ASSERT_TRUE(all_train(6)) << train_->text();
  first->send(SIGKILL);
  ASSERT_TRUE(all_train(2)) << train_->text();
  EXPECT_TRUE(train_->says("dp=4 on 2 nodes does not fit: 2 GiB are missing")) << train_->text();
}

TEST_F(NodeJob, AnElasticJobForWhichNothingFitsNamesWhatIsMissing) {
  train({"train"}, {{"ELASTIC", "21"}, {"SHORT", "1"}, {"JOIN_MS", "3000"}});
  const auto agent = join("agent");
  ASSERT_TRUE(all_train(4)) << train_->text();
  agent->send(SIGKILL);
  EXPECT_EQ(train_->wait(), 75) << train_->text();
  const std::string text = train_->text();
  EXPECT_NE(text.find("1 of 2 nodes joined within 3 s"), std::string::npos) << text;
  EXPECT_NE(text.find("fewer do not fit: 2 GiB are missing"), std::string::npos) << text;
}

TEST_F(NodeJob, AnElasticJobGrowsWithoutCostToItsBudget) {
  train({"train"}, {{"ELASTIC", "21"}, {"JOIN_MS", "1000"}});
  ASSERT_TRUE(all_train(2)) << train_->text();
  const auto first = join("first");
  ASSERT_TRUE(all_train(4)) << train_->text();
  for (int r = 0; r < 2; ++r) EXPECT_TRUE(train_->says(fmt::format("rank {} saved", r)));
  EXPECT_TRUE(train_->says("event layout -1 dp=2 on 1 node\ndp=4 on 2 nodes\n")) << train_->text();
  first->send(SIGKILL);  // the only restart of the budget
  ASSERT_TRUE(train_->says("event layout -1 dp=4 on 2 nodes\ndp=2 on 1 node\nnode 1, "))
      << train_->text();
  const auto second = join("second");
  ASSERT_TRUE(second->says("node 1 of 2: starting ranks 2 to 3")) << train_->text();
  ASSERT_TRUE(train_->says("event started -1 generation 3")) << train_->text();
  ASSERT_TRUE(all_train(4, 2)) << train_->text();
  train_->send(SIGTERM);
  EXPECT_EQ(train_->wait(), 143) << train_->text();
  EXPECT_EQ(second->wait(), 143);
}

TEST_F(NodeJob, ASignalWhileAnElasticJobGrowsEndsIt) {
  train({"slow_save"}, {{"ELASTIC", "21"}, {"JOIN_MS", "1000"}});
  ASSERT_TRUE(all_train(2)) << train_->text();
  const auto agent = join("agent");
  ASSERT_TRUE(train_->says("saving after this step, then dp=4 on 2 nodes")) << train_->text();
  train_->send(SIGTERM);
  EXPECT_EQ(train_->wait(), 143) << train_->text();
  EXPECT_EQ(agent->wait(), 143);
  EXPECT_EQ(train_->text().find("generation 1"), std::string::npos) << train_->text();
}

TEST_F(NodeJob, AnAgentThatLosesItsSupervisorEndsItsRanksAndLeaves) {
  train({"train"});
  const auto agent = join("agent");
  ASSERT_TRUE(all_train(4));
  std::istringstream words([&] {
    std::ostringstream all;
    all << std::ifstream(fmt::format("/proc/{0}/task/{0}/children", agent->pid())).rdbuf();
    return all.str();
  }());
  std::vector<pid_t> ranks;
  for (pid_t rank = 0; words >> rank;) ranks.push_back(rank);
  EXPECT_EQ(ranks.size(), 2u);
  train_->send(SIGKILL);
  EXPECT_EQ(agent->wait(), 75) << agent->text();
  EXPECT_TRUE(agent->says("cannot be reached"));
  for (const pid_t rank : ranks)
    EXPECT_FALSE(std::filesystem::exists(fmt::format("/proc/{}", rank)));
}

TEST_F(NodeJob, TheWrongSecretIsRefusedAndAMissingNodeNamed) {
  train({"report"}, {{"JOIN_MS", "3000"}});
  Secret::random().write_new_file(folder_ / "other");
  const auto stranger = join("stranger", folder_ / "other");
  EXPECT_EQ(stranger->wait(), 2);
  EXPECT_TRUE(stranger->says("closed the connection during the handshake")) << stranger->text();
  EXPECT_EQ(train_->wait(), 75);
  EXPECT_TRUE(train_->says("does not know this run's secret"));
  EXPECT_TRUE(train_->says("1 of 2 nodes joined within 3 s")) << train_->text();
}

TEST_F(NodeJob, StorageThatIsNotSharedIsRefused) {
  train({"report"}, {{"MARKER", folder_ / "nowhere"}});
  const auto agent = join("agent");
  EXPECT_EQ(train_->wait(), 2);
  EXPECT_EQ(agent->wait(), 2);
  EXPECT_TRUE(train_->says("storage is not shared")) << train_->text();
}

}  // namespace
}  // namespace weft
