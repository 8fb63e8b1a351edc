// launch/slurm_job.cpp: sbatch, scontrol and sacct, and what they print.
#include "launch/slurm_job.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/file.h"
#include "base/printable.h"
#include "launch/command_output.h"

namespace weft {
namespace {

constexpr int kLostPeers = 75, kTerminated = 143;

constexpr std::string_view kEnds[] = {"COMPLETED",     "FAILED",    "CANCELLED", "TIMEOUT",
                                      "NODE_FAIL",     "PREEMPTED", "BOOT_FAIL", "DEADLINE",
                                      "OUT_OF_MEMORY", "REVOKED"};

// The text after "KEY=" up to the next blank.
std::optional<std::string_view> field(std::string_view line, std::string_view key) {
  const std::string start = " " + std::string(key) + "=";
  const size_t at = line.find(start);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view rest = line.substr(at + start.size());
  return rest.substr(0, rest.find_first_of(" \n"));
}

int number(std::string_view text) {
  int value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

// "0:15": exit code, signal.
void read_exit(std::string_view text, SlurmState* state) {
  const size_t colon = std::min(text.find(':'), text.size());
  state->exit_code = number(text.substr(0, colon));
  if (colon < text.size()) state->signal = number(text.substr(colon + 1));
}

std::string trimmed(std::string_view text) {
  const size_t end = text.find_last_not_of(" \n\r");
  return std::string(text.substr(0, end == std::string_view::npos ? 0 : end + 1));
}

bool is_job_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

}  // namespace

bool SlurmState::has_ended() const {
  return std::find(std::begin(kEnds), std::end(kEnds), state) != std::end(kEnds);
}

int SlurmState::result() const {
  if (state == "COMPLETED") return 0;
  if (exit_code != 0) return exit_code;
  if (state == "CANCELLED") return kTerminated;
  return kLostPeers;  // a lost node, a time limit: another try may help
}

std::optional<SlurmState> parse_scontrol_job(std::string_view text) {
  const std::string line = " " + std::string(text.substr(0, text.find('\n')));
  const auto state = field(line, "JobState"), code = field(line, "ExitCode");
  if (!state || !code) return std::nullopt;
  SlurmState found;
  found.state = *state;
  read_exit(*code, &found);
  found.reason = field(line, "Reason").value_or("");
  found.nodes = field(line, "NodeList").value_or("");
  found.restarts = number(field(line, "Restarts").value_or("0"));
  return found;
}

std::optional<SlurmState> parse_sacct_job(std::string_view text) {
  const std::string_view line = text.substr(0, text.find('\n'));
  const size_t bar = line.find('|');
  if (bar == std::string_view::npos || bar == 0) return std::nullopt;
  SlurmState found;
  found.state = line.substr(0, std::min(bar, line.find(' ')));  // "CANCELLED by 1000"
  read_exit(line.substr(bar + 1), &found);
  return found;
}

namespace {

// What sbatch prints, as continuation lines of a message.
std::string indented(const std::string& text) {
  std::string out;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    out += "\n  " + printable_line(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
}

// Nothing is wrong with the job then.
bool is_out_of_reach(const std::string& words) {
  for (const char* part : {"Unable to contact", "Unable to resolve", "Unknown host",
                           "Connection refused", "timed out", "Unable to establish"}) {
    if (words.find(part) != std::string::npos) return true;
  }
  return false;
}

}  // namespace

std::string submit_slurm_job(const std::filesystem::path& path, const std::string& text) {
  write_file_atomic(path, text);
  const auto output = run_command({"sbatch", "--parsable", path.string()});
  if (!output)
    throw UserError("--engine slurm: sbatch is not on the PATH",
                    fmt::format("the job's script is written: run `sbatch {}` on a machine of the "
                                "cluster that has Slurm's commands, or start the run without "
                                "--engine",
                                path.string()));
  if (output->exit_code != 0)
    throw UserError(
        fmt::format("sbatch did not accept {}:{}", path.string(), indented(trimmed(output->err))),
        is_out_of_reach(output->err)
            ? "does this machine reach Slurm's controller (`scontrol ping`; SlurmctldHost in "
              "slurm.conf)?"
            : "launch.slurm has the options of sbatch (partition, account, time, ...)");
  // "17", or "17;cluster".
  const std::string id = trimmed(output->out).substr(0, output->out.find_first_of(";\n"));
  if (!is_job_number(id))
    throw RunError(fmt::format("sbatch --parsable printed \"{}\" instead of a job's number",
                               printable_line(trimmed(output->out))));
  return id;
}

std::optional<SlurmState> find_slurm_state(const std::string& job_id) {
  const auto live = run_command({"scontrol", "--oneliner", "show", "job", job_id});
  if (live && live->exit_code == 0) {
    if (auto state = parse_scontrol_job(live->out)) return state;
  }
  const auto past = run_command({"sacct", "--parsable2", "--noheader", "--allocations",
                                 "--format=State,ExitCode", "--jobs=" + job_id});
  if (past && past->exit_code == 0) return parse_sacct_job(past->out);
  return std::nullopt;
}

}  // namespace weft
