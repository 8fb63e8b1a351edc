// kernel/gpu/kept_choices.cpp: a lock beside the file is held while a product is measured.
#include "kernel/gpu/kept_choices.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "base/log.h"

namespace weft {
namespace {

// Choices are reported after this many known products in a row: not after each of twenty new ones.
constexpr int kQuietCalls = 16;

// Best effort: where the folder cannot be written, locks do not work or somebody holds one for very
// long, every process measures by itself.
class MachineLock {
 public:
  explicit MachineLock(std::filesystem::path path) {
    if (path.empty()) return;
    std::error_code none;
    std::filesystem::create_directories(path.parent_path(), none);
    path += ".lock";
    fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    constexpr auto kNap = std::chrono::milliseconds(1);
    constexpr int kNaps = 10'000;
    for (int i = 0; fd_ >= 0 && i < kNaps && ::flock(fd_, LOCK_EX | LOCK_NB) != 0; ++i) {
      if (errno != EWOULDBLOCK && errno != EINTR) break;
      std::this_thread::sleep_for(kNap);
    }
  }
  ~MachineLock() {
    if (fd_ >= 0) ::close(fd_);
  }
  MachineLock(const MachineLock&) = delete;
  MachineLock& operator=(const MachineLock&) = delete;

 private:
  int fd_ = -1;
};

}  // namespace

KeptChoices::KeptChoices(std::string measured_on, std::filesystem::path path)
    : measured_on_(std::move(measured_on)), path_(std::move(path)) {}

void KeptChoices::load() {
  GemmChoices stored = load_gemm_choices(path_, measured_on_);
  stored.merge(choices_);  // what others have stored first counts
  choices_ = std::move(stored);
  is_loaded_ = true;
}

LtAlgorithm KeptChoices::choose(const LtProblem& problem,
                                const std::function<bool(LtAlgorithm*)>& accepts,
                                const std::function<Measured()>& measure) {
  const auto usable = [&]() -> std::optional<LtAlgorithm> {
    const LtAlgorithm* kept = find(problem);
    if (!kept) return std::nullopt;
    LtAlgorithm algorithm = *kept;
    return accepts(&algorithm) ? std::optional(algorithm) : std::nullopt;
  };
  if (const auto kept = usable()) return *kept;
  const MachineLock lock(path_);
  load();
  if (const auto kept = usable()) return *kept;
  const Measured measured = measure();
  if (measured.is_kept) keep(problem, measured.algorithm);
  return measured.algorithm;
}

const LtAlgorithm* KeptChoices::find(const LtProblem& problem) {
  if (!is_loaded_) load();
  const auto found = choices_.find(problem);
  return found == choices_.end() ? nullptr : &found->second;
}

void KeptChoices::keep(const LtProblem& problem, const LtAlgorithm& algorithm) {
  choices_[problem] = algorithm;
  save_gemm_choices(path_, measured_on_, choices_);
  ++num_unreported_;
  quiet_calls_ = 0;
}

void KeptChoices::note_known_call() {
  if (num_unreported_ == 0 || ++quiet_calls_ < kQuietCalls) return;
  log_info("{} matrix products were measured; their algorithms are stored in {}", num_unreported_,
           path_.string());
  num_unreported_ = 0;
}

}  // namespace weft
