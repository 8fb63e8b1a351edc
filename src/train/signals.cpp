// train/signals.cpp: handlers that end the process, or only record the signal.
#include "train/signals.h"

#include <unistd.h>

#include <cerrno>
#include <ctime>

#include "net/shm_world.h"

namespace weft {
namespace {

// Process-wide. Handlers may run on two threads at once: each variable is set by exchange.
std::atomic<int> noted{0};
std::atomic<int64_t> first_urgent_ms{0};
std::atomic<const StopWords*> stop_words{&kTrainWords};
std::atomic<bool> is_begun{false};  // there was something to save
std::atomic<sem_t*> second_waiter{nullptr};
std::atomic<int64_t> second_ms{0};  // when the waiter was woken; 0: never

int64_t now_ms() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000 + 1;  // never 0
}

// A SIGINT or SIGTERM that is neither the first nor its echo.
bool is_second(int signal) {
  if (!is_urgent(signal)) return false;
  int64_t first = 0;
  const int64_t now = now_ms();
  return !first_urgent_ms.compare_exchange_strong(first, now) && now - first > kSameSignalMs;
}

void note(int signal) {
  const int saved = errno;  // belongs to the interrupted code
  const StopWords& said = *stop_words.load();
  if (is_second(signal)) {
    const int64_t now = now_ms();
    sem_t* waiter = second_waiter.exchange(nullptr);
    if (waiter) second_ms = now;
    if (waiter || now - second_ms > kSameSignalMs) {  // no echo of the second
      write_signal_line(signal, said.second);
      if (!waiter || ::sem_post(waiter) != 0) ::_exit(said.second_exit);
    }
    errno = saved;
    return;
  }
  int none = 0;
  if (noted.compare_exchange_strong(none, signal)) write_signal_line(signal, said.noted);
  errno = saved;
}

// The run's exit code is decided: a late signal does not change it.
void note_late(int signal) {
  const int saved = errno;
  write_signal_line(signal, ": the run has ended already");
  if (is_second(signal)) ::_exit(128 + signal);
  errno = saved;
}

void end_early(int signal) {
  if (is_begun) return note_late(signal);
  write_signal_line(signal, stop_words.load()->early);
  ::_exit(128 + signal);
}

void handle_all(void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  for (const int signal : kStopSignals) ::sigaddset(&action.sa_mask, signal);
  for (const int signal : kStopSignals) {
    struct sigaction now {};
    ::sigaction(signal, nullptr, &now);
    const bool stays = signal == SIGHUP && now.sa_handler == SIG_IGN;
    if (!stays) ::sigaction(signal, &action, nullptr);
  }
}

}  // namespace

StopSignals::StopSignals(const ShmWorld* world, const StopWords& own)
    : world_(world), words_before_(stop_words.load()) {
  if (world) {
    watch_stop_word(&world->stop_word());
    return;
  }
  for (size_t i = 0; i < std::size(kStopSignals); ++i)
    ::sigaction(kStopSignals[i], nullptr, &before_[i]);
  stop_words = &own;
  noted = 0;
  first_urgent_ms = 0;
  second_ms = 0;
  is_begun = false;
  watch_stop_word(&noted);
  handle_all(end_early);
}

StopSignals::~StopSignals() {
  watch_stop_word(nullptr);
  if (world_) return;
  for (size_t i = 0; i < std::size(kStopSignals); ++i)
    ::sigaction(kStopSignals[i], &before_[i], nullptr);
  stop_words = words_before_;
}

void StopSignals::hold() const {
  if (!world_) {
    handle_all(note);
    return hand_over();  // previous handlers may be restored only when the run has ended
  }
  while (!world_->begin_saving()) ::pause();  // the supervisor is about to end us
}

void StopSignals::hand_over() const { is_begun = true; }

void StopSignals::record_second_by(sem_t* waiter) { second_waiter = waiter; }

void StopSignals::end_recorded() { ::_exit(kTrainWords.second_exit); }

int StopSignals::received() const { return world_ ? world_->stop_word().load() : noted.load(); }

}  // namespace weft
