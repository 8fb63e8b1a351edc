// tests/launch/node_job.h: a job on several nodes, which are processes of this machine.
#pragma once

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "net/secret.h"
#include "tests/io/temporary_folder.h"
#include "tests/launch/spawn.h"

namespace weft::testing {

class Process {
 public:
  Process(const std::filesystem::path& log, const std::vector<std::string>& words,
          const std::function<void()>& prepare = {})
      : log_(log) {
    std::vector<std::string> all = {WEFT_RANK_PROGRAM};
    all.insert(all.end(), words.begin(), words.end());
    pid_ = spawn(all, log, log, prepare);
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
  std::vector<pid_t> children() const { return children_of(pid_); }
  static std::vector<pid_t> children_of(pid_t pid) {
    std::ifstream file(fmt::format("/proc/{0}/task/{0}/children", pid));
    std::vector<pid_t> all;
    for (pid_t child = 0; file >> child;) all.push_back(child);
    return all;
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
    for (const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(40);
         std::chrono::steady_clock::now() < end;) {
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
  static constexpr int64_t kLongMs = 30'000;

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
  std::unique_ptr<Process> join(const std::string& name, std::string secret_file = "",
                                const std::function<void()>& prepare = {}) {
    if (secret_file.empty()) secret_file = secret();
    return std::make_unique<Process>(
        folder_ / name,
        std::vector<std::string>{"agent", "--join", endpoint_, "--secret-file", secret_file},
        prepare);
  }
  // The agent of a node that has too little shared memory for ranks.
  std::unique_ptr<Process> join_unfit(const std::string& name) {
    return join(name, "", [] {
      ::signal(SIGXFSZ, SIG_IGN);
      const rlimit little{16 << 20, 16 << 20};
      if (::setrlimit(RLIMIT_FSIZE, &little) != 0) ::_exit(126);
    });
  }

  TemporaryFolder folder_;
  std::unique_ptr<Process> train_;
  std::string endpoint_;
};

}  // namespace weft::testing
