// cmd/train_slurm.cpp: a run becomes a script, a job, and lines of its log.
#include "cmd/train_slurm.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/replace_folder.h"
#include "cmd/command.h"
#include "launch/fork.h"
#include "launch/slurm_job.h"
#include "launch/slurm_place.h"
#include "planning/layout.h"
#include "train/run_history.h"
#include "train/signals.h"

namespace weft {
namespace fs = std::filesystem;
namespace {

constexpr auto kPoll = std::chrono::seconds(1);
constexpr int kMostSilent = 60;  // questions that nobody answers, while a controller restarts

constexpr StopWords kFollowWords{": no longer following the job, which goes on (squeue, scancel)",
                                 ": no longer following the job, which goes on (squeue, scancel)",
                                 "", 1};

// Of this command on the nodes, whose PATH may differ.
std::vector<std::string> words_for_nodes() {
  std::vector<std::string> words = command_words();
  words.at(0) = fs::read_symlink("/proc/self/exe").string();
  return words;
}

[[noreturn]] void become_srun() {
  std::vector<std::string> words = {"srun", "--ntasks-per-node=1", "--cpu-bind=none",
                                    "--kill-on-bad-exit=0"};
  for (const std::string& word : words_for_nodes()) words.push_back(word);
  const std::vector<char*> argv = pointers(words);
  ::execvp(argv[0], argv.data());
  throw UserError(fmt::format("--engine slurm: srun cannot be run: {}", std::strerror(errno)),
                  "SLURM_JOB_ID is set, as in an allocation: its nodes have Slurm's commands");
}

SlurmScript script_of(const RunConfig& c, const fs::path& dir) {
  SlurmScript script;
  script.name = c.name;
  script.nodes = c.launch.nodes;
  script.cores_per_node = c.parallel.dp * c.parallel.tp / c.launch.nodes * c.launch.threads;
  script.directory = fs::current_path();
  script.log = dir / "slurm-%j.log";
  script.options = c.launch.slurm;
  script.command = words_for_nodes();
  return script;
}

// Copies what has been added to a file.
class Tail {
 public:
  explicit Tail(fs::path path) : path_(std::move(path)) {}
  void copy() {
    std::ifstream file(path_, std::ios::binary);
    file.seekg(at_);
    char buffer[1 << 16];
    while (file.read(buffer, sizeof buffer) || file.gcount() > 0) {
      std::fwrite(buffer, 1, static_cast<size_t>(file.gcount()), stdout);
      at_ += file.gcount();
    }
    std::fflush(stdout);
  }

 private:
  fs::path path_;
  std::streamoff at_ = 0;
};

void report_state(const std::string& job, const SlurmState& state) {
  const std::string about = state.state == "PENDING" ? state.reason : state.nodes;
  log_info("job {}: {}{}", job, state.state, about.empty() ? "" : fmt::format(" ({})", about));
}

int follow(const std::string& job, const fs::path& log) {
  const StopSignals signals(nullptr, kFollowWords);
  Tail tail(log);
  std::string last;
  for (int silent = 0; silent < kMostSilent;) {
    const auto state = find_slurm_state(job);
    silent = state ? 0 : silent + 1;
    if (state && state->state != last) report_state(job, *state);
    if (state) last = state->state;
    tail.copy();
    if (state && state->has_ended()) return state->result();
    std::this_thread::sleep_for(kPoll);
  }
  throw RunError(fmt::format("Slurm no longer answers for job {}, last {}", job, last),
                 fmt::format("{} has its output", log.string()));
}

int submit(const RunConfig& c, const fs::path& dir, bool waits) {
  const std::string text = slurm_script_text(script_of(c, dir));
  make_folder(dir);  // not for options that are refused
  const std::string job = submit_slurm_job(dir / "slurm.sh", text);
  const fs::path log = dir / fmt::format("slurm-{}.log", job);
  fmt::print("submitted job {}\n", job);
  std::fflush(stdout);
  log_info("its output is in {}", log.string());
  return waits ? follow(job, log) : 0;
}

}  // namespace

bool is_slurm_task() { return std::getenv("SLURM_STEP_ID") != nullptr; }

int train_by_slurm(const RunFile& file, const TrainOptions& options, bool waits) {
  const RunConfig& c = file.config();
  check_layout(c);
  require(run_address_of(c, options).empty(),
          "--engine slurm: the run directory is {}; a job needs a folder that all nodes share",
          run_address_of(c, options));
  if (std::getenv("SLURM_JOB_ID") != nullptr) become_srun();
  return submit(c, fs::absolute(run_dir_of(c, options)), waits);
}

void continue_requeued(const RunConfig& c, TrainOptions* options) {
  const char* job = std::getenv("SLURM_JOB_ID");
  if (job == nullptr || slurm_restarts() == 0) return;
  if (!run_address_of(c, *options).empty()) return;
  if (read_history(run_dir_of(c, *options)).slurm_job != job) return;
  if (options->overwrite || options->resume != "auto")
    log_info("job {} was requeued: the run is resumed", job);
  options->overwrite = false;
  options->resume = "auto";
}

}  // namespace weft
