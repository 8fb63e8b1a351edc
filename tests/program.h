// tests/program.h: starts, watches, signals and reaps a child process.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/io/temporary_folder.h"
#include "tests/launch/spawn.h"

namespace weft::testing {

inline std::string slurp(const std::filesystem::path& path) {
  std::ostringstream text;
  std::ifstream in(path, std::ios::binary);
  if (in) text << in.rdbuf();
  return text.str();
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

inline int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

// Every part is in the text; a failure names the missing one.
inline void expect_parts(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) {
    EXPECT_TRUE(contains(text, part)) << "\"" << part << "\" is not in:\n" << text;
  }
}

inline std::vector<pid_t> children_of(pid_t pid) {
  std::istringstream words(
      slurp("/proc/" + std::to_string(pid) + "/task/" + std::to_string(pid) + "/children"));
  std::vector<pid_t> found;
  for (pid_t child = 0; words >> child;) found.push_back(child);
  return found;
}

struct Ended {
  int exit_code = -1;      // -1: ended by a signal
  int signal = 0;          // the signal that ended the program
  int64_t peak_bytes = 0;  // peak resident memory: the maximum of the program and its children
  std::string out, err;
  // Exit code, or -N for signal N.
  int code() const { return signal != 0 ? -signal : exit_code; }
};

struct StartOptions {
  std::map<std::string, std::string> env = {};  // added to ours
  std::string input = {};                       // standard input of the program
  std::string program = WEFT_PROGRAM;
  bool joins_streams = false;            // stderr is written to out
  rlim_t file_bytes = RLIM_INFINITY;     // largest file; a longer write fails as on a full disk
  rlim_t address_bytes = RLIM_INFINITY;  // limit of mapped memory
  rlim_t open_files = RLIM_INFINITY;     // limit of open files
  std::function<void()> prepare = {};    // runs in the child before the program
};

// As in a terminal's child: whoever started the tests may ignore SIGHUP (nohup).
[[maybe_unused]] inline const auto kHangUpBefore = std::signal(SIGHUP, SIG_DFL);

class Program {
 public:
  explicit Program(const std::vector<std::string>& words, const StartOptions& options = {})
      : error_file_(folder_ / (options.joins_streams ? "out" : "err")) {
    std::ofstream(folder_ / "in", std::ios::binary) << options.input;
    std::vector<std::string> all = {options.program};
    all.insert(all.end(), words.begin(), words.end());
    pid_ = spawn(all, folder_ / "out", error_file_, [&] { prepare(options); });
    if (pid_ > 0) return;
    ADD_FAILURE() << "no process for " << options.program;
    is_reaped_ = true;  // never signal pid -1: that means every process
  }
  ~Program() {  // kills the program if it still runs
    if (is_reaped_) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  pid_t pid() const { return pid_; }
  std::vector<pid_t> children() const { return children_of(pid_); }
  // Output written so far.
  std::string out() const { return slurp(folder_ / "out"); }
  std::string err() const { return slurp(error_file_); }

  void send(int signal) const {
    if (!is_reaped_) ::kill(pid_, signal);
  }
  bool is_running() {
    if (!is_reaped_) is_reaped_ = ::wait4(pid_, &status_, WNOHANG, &usage_) == pid_;
    return !is_reaped_;
  }
  // Waits until the condition holds, the program ends or the deadline passes. Returns whether the
  // condition held.
  bool wait_until(const std::function<bool()>& holds, double seconds = 60) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    while (std::chrono::steady_clock::now() < deadline) {
      if (holds()) return true;
      if (!is_running()) return holds();
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return false;
  }
  // Waits until the output has the words this many times. Returns whether it does.
  bool says(const std::string& words, int times = 1) {
    return wait_until([&] { return count(words) >= times; });
  }
  int count(const std::string& words) const { return testing::count(out(), words); }
  // At the deadline, reports a failure and kills the program.
  Ended wait(double seconds = 120) {
    if (!wait_until([this] { return !is_running(); }, seconds)) {
      ADD_FAILURE() << "the program did not end within " << seconds << " s\n" << out() << err();
      ::kill(pid_, SIGKILL);
      is_reaped_ = ::wait4(pid_, &status_, 0, &usage_) == pid_;
    }
    Ended ended;
    if (WIFEXITED(status_)) ended.exit_code = WEXITSTATUS(status_);
    if (WIFSIGNALED(status_)) ended.signal = WTERMSIG(status_);
    ended.peak_bytes = int64_t{usage_.ru_maxrss} * 1024;
    ended.out = out();
    ended.err = err();
    return ended;
  }

 private:
  // Runs in the child.
  void prepare(const StartOptions& options) const {
    if (::dup2(::open((folder_ / "in").c_str(), O_RDONLY | O_CLOEXEC), 0) < 0) ::_exit(126);
    for (const auto& [key, value] : options.env) ::setenv(key.c_str(), value.c_str(), 1);
    // weft ignores SIGXFSZ, so a file that is too long makes write() fail.
    limit(RLIMIT_FSIZE, options.file_bytes);
    limit(RLIMIT_AS, options.address_bytes);
    limit(RLIMIT_NOFILE, options.open_files);
    if (options.prepare) options.prepare();
  }
  static void limit(decltype(RLIMIT_AS) what, rlim_t most) {
    const rlimit both{most, most};
    if (most != RLIM_INFINITY) ::setrlimit(what, &both);
  }

  TemporaryFolder folder_;
  std::filesystem::path error_file_;
  pid_t pid_ = -1;
  int status_ = 0;
  rusage usage_ = {};
  bool is_reaped_ = false;
};

inline Ended run_to_end(const std::vector<std::string>& words, const StartOptions& options = {}) {
  return Program(words, options).wait();
}

}  // namespace weft::testing
