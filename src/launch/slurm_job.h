// launch/slurm_job.h: a run as a Slurm job: its script, its submission, its state
// (docs/design/0020-engines.md).
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

// How long before its time limit Slurm warns a job, with SIGUSR1.
inline constexpr int kSlurmWarnS = 120;

struct SlurmScript {
  std::string name;
  int64_t nodes = 1;
  int64_t cores_per_node = 0;  // 0: the whole node
  std::filesystem::path directory, log;
  std::map<std::string, std::string> options;  // of sbatch, over ours; no value: a flag
  std::vector<std::string> command;            // run once on every node
};

// UserError where an option is no name, belongs to us, or a value has a line end.
std::string slurm_script_text(const SlurmScript& script);

// Writes the script and submits it. The job's number. UserError where Slurm's commands are absent
// or sbatch refuses the job.
std::string submit_slurm_job(const std::filesystem::path& path, const std::string& text);

struct SlurmState {
  std::string state;   // "PENDING", "RUNNING", "COMPLETED" ...
  std::string reason;  // why it waits
  std::string nodes;   // compressed
  int exit_code = 0, signal = 0;
  int restarts = 0;

  bool has_ended() const;
  int result() const;  // as an exit code of weft, where it has ended
};

// What `scontrol --oneliner show job` prints; none where it is something else.
std::optional<SlurmState> parse_scontrol_job(std::string_view line);
// What `sacct --parsable2 --noheader --format=State,ExitCode` prints.
std::optional<SlurmState> parse_sacct_job(std::string_view text);

// Of scontrol, or of sacct where the controller has forgotten the job. None: neither answers.
std::optional<SlurmState> find_slurm_state(const std::string& job_id);

}  // namespace weft
