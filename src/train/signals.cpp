// train/signals.cpp: handlers that end the process, or only note the number.
#include "train/signals.h"

#include <unistd.h>

#include <csignal>
#include <cstring>

namespace weft {
namespace {

volatile std::sig_atomic_t noted = 0;

// Only async-signal-safe calls.
[[noreturn]] void end_now(int number, const char* text, int exit_code) {
  const char* name = number == SIGTERM ? "SIGTERM" : "SIGINT";
  [[maybe_unused]] ssize_t put = ::write(STDERR_FILENO, name, std::strlen(name));
  put = ::write(STDERR_FILENO, text, std::strlen(text));
  ::_exit(exit_code);
}

void end_before_the_start(int number) {
  end_now(number, ": stopped before the first step, with nothing to save\n", 128 + number);
}

void end_unsaved(int number) {
  end_now(number,
          ", the second signal: ended at once; the newest checkpoint is where the run goes on\n",
          1);
}

void note(int number) {
  noted = number;
  std::signal(SIGTERM, end_unsaved);
  std::signal(SIGINT, end_unsaved);
}

void set_both(void (*handler)(int)) {
  std::signal(SIGTERM, handler);
  std::signal(SIGINT, handler);
}

}  // namespace

StopSignals::StopSignals(bool is_rank) {
  noted = 0;
  set_both(is_rank ? SIG_DFL : end_before_the_start);
}

StopSignals::~StopSignals() { set_both(SIG_DFL); }

void StopSignals::hold() const { set_both(note); }

int StopSignals::received() const { return noted; }

}  // namespace weft
