// launch/slurm_script.cpp: what sbatch reads, and what it runs on the first node.
#include "base/error.h"
#include "base/printable.h"
#include "base/shell_word.h"
#include "launch/slurm_job.h"

namespace weft {
namespace {

// The script relies on these.
constexpr struct {
  const char *name, *why;
} kOwn[] = {{"nodes", "it is launch.nodes"},
            {"ntasks", "a run has one task on each node"},
            {"ntasks-per-node", "a run has one task on each node"},
            {"array", "a run is one job"},
            {"wrap", "the job runs a script that weft writes"},
            {"chdir", "the job runs in the folder of this command"}};

bool is_option_name(std::string_view name) {
  return !name.empty() && name[0] != '-' &&
         name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-") == std::string_view::npos;
}

void check_option(const std::string& name, const std::string& value) {
  require(is_option_name(name),
          "launch.slurm: {} is not the long name of an option of sbatch (partition, time, ...)",
          printable_line(name));
  for (const auto& own : kOwn)
    require(name != own.name, "launch.slurm: {} is set by weft: {}", name, own.why);
  require(printable_line(value) == value && value.find('"') == std::string::npos,
          "launch.slurm: the value of {} has a quote, a line end or a control character", name);
}

// sbatch splits its lines into words as a shell does; it knows double quotes.
std::string line_of(const std::string& name, const std::string& value) {
  if (value.empty()) return fmt::format("#SBATCH --{}\n", name);
  const bool is_plain = value.find_first_of(" \t#'\\$") == std::string::npos;
  return fmt::format("#SBATCH --{}={}\n", name, is_plain ? value : "\"" + value + "\"");
}

std::map<std::string, std::string> options_of(const SlurmScript& script) {
  for (const auto& [name, value] : script.options) check_option(name, value);
  std::map<std::string, std::string> all = {
      {"job-name", script.name}, {"nodes", std::to_string(script.nodes)},
      {"ntasks-per-node", "1"},  {"output", script.log.string()},
      {"open-mode", "append"},   {"chdir", script.directory.string()},
      {"requeue", ""},           {"signal", fmt::format("USR1@{}", kSlurmWarnS)},
  };
  const bool has_cores =
      script.options.contains("cpus-per-task") || script.options.contains("exclusive");
  if (!has_cores && script.cores_per_node == 0) all["exclusive"] = "";
  if (!has_cores && script.cores_per_node > 0)
    all["cpus-per-task"] = std::to_string(script.cores_per_node);
  for (const auto& [name, value] : script.options) all[name] = value;
  return all;
}

}  // namespace

std::string slurm_script_text(const SlurmScript& script) {
  std::string text = "#!/bin/bash\n# Written by weft train --engine slurm.\n";
  for (const auto& [name, value] : options_of(script)) text += line_of(name, value);
  std::string command;
  for (const std::string& word : script.command) command += " " + shell_word(word);
  text += fmt::format(R"(
# Slurm signals the tasks as well: this shell only waits for their exit code.
trap : TERM USR1
srun --ntasks-per-node=1 --cpu-bind=none --kill-on-bad-exit=0{}
code=$?
# All is saved, and the job continues when it is its turn: after Slurm's warning before the time
# limit, or where it made room for another job (which Slurm would requeue only after killing it).
# A shell's && and || bind alike: hence the braces.
is_preempted() {{ scontrol --oneliner show job "$SLURM_JOB_ID" | grep -q ' PreemptTime=[0-9]'; }}
if {{ [ "$code" -eq 138 ] && [ "$SECONDS" -gt 60 ]; }} ||
  {{ [ "$code" -eq 143 ] && is_preempted; }}; then
  scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
)",
                      command);
  return text;
}

}  // namespace weft
