// train/signals.cpp: handlers that only note the number.
#include "train/signals.h"

#include <csignal>

namespace weft {
namespace {

volatile std::sig_atomic_t noted = 0;

void note(int number) {
  noted = number;
  std::signal(number, SIG_DFL);
}

}  // namespace

StopSignals::StopSignals() {
  noted = 0;
  std::signal(SIGTERM, note);
  std::signal(SIGINT, note);
}

StopSignals::~StopSignals() {
  std::signal(SIGTERM, SIG_DFL);
  std::signal(SIGINT, SIG_DFL);
}

int StopSignals::received() const { return noted; }

}  // namespace weft
