// tests/e2e/program.cpp: fork, exec, and a deadline on everything.
#include "tests/e2e/program.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <sstream>
#include <thread>

#include "tests/launch/spawn.h"

namespace weft::testing {
namespace {

// As in a terminal's child: whoever started the tests may ignore SIGHUP (nohup).
[[maybe_unused]] const auto kBefore = std::signal(SIGHUP, SIG_DFL);

}  // namespace

using Clock = std::chrono::steady_clock;

Program::Program(const std::vector<std::string>& words, const StartOptions& options) {
  std::vector<std::string> all = {WEFT_PROGRAM};
  all.insert(all.end(), words.begin(), words.end());
  pid_ = spawn(all, folder_ / "out", folder_ / "err", [&options] {
    for (const auto& [key, value] : options.env) ::setenv(key.c_str(), value.c_str(), 1);
    const rlimit addresses{options.address_bytes, options.address_bytes};
    if (options.address_bytes != RLIM_INFINITY) ::setrlimit(RLIMIT_AS, &addresses);
    const rlimit files{options.open_files, options.open_files};
    if (options.open_files != RLIM_INFINITY) ::setrlimit(RLIMIT_NOFILE, &files);
    if (options.file_bytes == RLIM_INFINITY) return;
    // The program must not die of SIGXFSZ: writing more is an error, as on a full disk.
    const rlimit limit{options.file_bytes, options.file_bytes};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  });
}

Program::~Program() {
  if (pid_ <= 0 || is_reaped_) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, &status_, 0);
}

void Program::send(int signal) const {
  if (pid_ > 0 && !is_reaped_) ::kill(pid_, signal);
}

bool Program::is_running() {
  if (pid_ <= 0 || is_reaped_) return false;
  is_reaped_ = ::waitpid(pid_, &status_, WNOHANG) == pid_;
  return !is_reaped_;
}

bool Program::wait_until(const std::function<bool()>& holds, double seconds) {
  const auto deadline = Clock::now() + std::chrono::duration<double>(seconds);
  while (Clock::now() < deadline) {
    poll_memory();
    if (holds()) return true;
    if (!is_running()) return holds();
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return false;
}

Ended Program::wait(double seconds) {
  if (!wait_until([this] { return !is_running(); }, seconds)) {
    ADD_FAILURE() << "the program did not end within " << seconds << " s";
    send(SIGKILL);
    ::waitpid(pid_, &status_, 0);
    is_reaped_ = true;
  }
  Ended ended;
  if (WIFEXITED(status_)) ended.exit_code = WEXITSTATUS(status_);
  if (WIFSIGNALED(status_)) ended.signal = WTERMSIG(status_);
  ended.out = slurp(folder_ / "out");
  ended.err = slurp(folder_ / "err");
  return ended;
}

void Program::poll_memory() {
  std::ifstream status("/proc/" + std::to_string(pid_) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (!line.starts_with("RssAnon:")) continue;
    peak_anonymous_ = std::max(peak_anonymous_, std::stol(line.substr(8)) * 1024);
  }
}

Ended run_to_end(const std::vector<std::string>& words, const StartOptions& options) {
  return Program(words, options).wait();
}

std::string slurp(const std::filesystem::path& path) {
  std::ostringstream text;
  std::ifstream in(path, std::ios::binary);
  if (in) text << in.rdbuf();
  return text.str();
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

void expect_parts(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) {
    EXPECT_TRUE(contains(text, part)) << "\"" << part << "\" is not in:\n" << text;
  }
}

}  // namespace weft::testing
