// tests/launch/slurm_job_test.cpp: the script for sbatch, and the states that Slurm prints. The
// real programs: tests/interop/slurm_interop.py.
#include "launch/slurm_job.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "base/error.h"
#include "base/printable.h"
#include "launch/command_output.h"
#include "tests/io/temporary_folder.h"

namespace weft {
namespace {

SlurmScript script() {
  SlurmScript made;
  made.name = "first";
  made.nodes = 2;
  made.directory = "/data/my runs";
  made.log = "/data/runs/first/slurm-%j.log";
  made.command = {"/usr/bin/weft", "train", "it's.yaml", "--set", "parallel.dp=2"};
  return made;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(SlurmScript, HasTheOptionsAndTheCommand) {
  SlurmScript made = script();
  made.options = {{"partition", "gpu"}, {"time", "4:00:00"}, {"job-name", "other"}};
  const std::string text = slurm_script_text(made);
  for (const char* line :
       {"#!/bin/bash\n", "#SBATCH --nodes=2\n", "#SBATCH --ntasks-per-node=1\n",
        "#SBATCH --job-name=other\n", "#SBATCH --partition=gpu\n", "#SBATCH --time=4:00:00\n",
        "#SBATCH --exclusive\n", "#SBATCH --signal=USR1@120\n", "#SBATCH --requeue\n",
        "#SBATCH --chdir=\"/data/my runs\"\n", "#SBATCH --output=/data/runs/first/slurm-%j.log\n",
        " /usr/bin/weft train 'it'\\''s.yaml' --set parallel.dp=2\n"}) {
    EXPECT_TRUE(has(text, line)) << line << "\nin\n" << text;
  }
}

TEST(SlurmScript, AsksForTheCoresOfTheThreads) {
  SlurmScript made = script();
  made.cores_per_node = 8;
  EXPECT_TRUE(has(slurm_script_text(made), "#SBATCH --cpus-per-task=8\n"));
  EXPECT_FALSE(has(slurm_script_text(made), "exclusive"));
  made.options = {{"cpus-per-task", "16"}};
  EXPECT_TRUE(has(slurm_script_text(made), "#SBATCH --cpus-per-task=16\n"));
}

TEST(SlurmScript, OptionsThatWouldBreakItAreRefused) {
  const std::map<std::string, std::string> bad = {
      {"nodes", "3"}, {"ntasks", "4"}, {"Partition", "x"},  {"--time", "1"},
      {"", "x"},      {"time\n", "1"}, {"comment", "a\nb"}, {"account", "a\"b"}};
  for (const auto& [name, value] : bad) {
    SlurmScript made = script();
    made.options = {{name, value}};
    EXPECT_THROW(static_cast<void>(slurm_script_text(made)), UserError) << name;
  }
  SlurmScript wraps = script();
  wraps.options = {{"wrap", "hostname"}};
  try {
    static_cast<void>(slurm_script_text(wraps));
    FAIL();
  } catch (const UserError& e) {
    EXPECT_STREQ(e.what(),
                 "launch.slurm: wrap is set by weft: the job runs a script that weft writes");
  }
}

// The part after sbatch's lines, run by a shell with an srun that prints its arguments and ends
// with `code`, and a scontrol that prints its own on stderr and shows a job that was preempted, or
// not. bash counts SECONDS on from the value in its environment.
CommandOutput run_script(int code, const std::string& seconds, bool is_preempted) {
  const testing::TemporaryFolder folder;
  const auto write_program = [&](const char* name, const std::string& text) {
    std::ofstream(folder / name) << "#!/bin/bash\n" << text;
    std::filesystem::permissions(folder / name, std::filesystem::perms::owner_all);
  };
  const std::string show = "for w in \"$@\"; do echo \"<$w>\"; done\n";
  write_program("srun", show + fmt::format("exit {}\n", code));
  write_program("scontrol", fmt::format("echo scontrol \"$@\" >&2\necho JobId=17 PreemptTime={}\n",
                                        is_preempted ? "2026-11-18T20:00:00" : "None"));
  std::ofstream(folder / "job.sh") << slurm_script_text(script());
  const auto ended =
      run_command({"env", "PATH=" + folder.path().string() + ":" + std::getenv("PATH"),
                   "SLURM_JOB_ID=17", "SECONDS=" + seconds, "bash", (folder / "job.sh").string()});
  return ended.value();
}

TEST(SlurmScript, IsAShellScriptThatKeepsTheExitCode) {
  const CommandOutput ended = run_script(75, "0", false);
  EXPECT_EQ(ended.exit_code, 75) << ended.err;
  EXPECT_TRUE(has(ended.out, "<train>\n<it's.yaml>\n<--set>\n<parallel.dp=2>\n")) << ended.out;
  EXPECT_EQ(ended.err, "");
}

// After Slurm's warning before the time limit (138), unless the job has only just begun: a limit so
// short would stop it for ever. After a preemption (143) always.
TEST(SlurmScript, RequeuesWhatTheTimeLimitOrAPreemptionHasStopped) {
  const std::string requeue = "scontrol requeue 17\n", show = "scontrol --oneliner show job 17\n";
  const auto scontrol = [](int code, const std::string& seconds, bool is_preempted) {
    const CommandOutput ended = run_script(code, seconds, is_preempted);
    EXPECT_EQ(ended.exit_code, code) << ended.err;
    return ended.err;
  };
  EXPECT_EQ(scontrol(138, "61", false), requeue);
  EXPECT_EQ(scontrol(138, "10", false), "");
  EXPECT_EQ(scontrol(143, "10", true), show + requeue);
  EXPECT_EQ(scontrol(143, "61", false), show);
  EXPECT_EQ(scontrol(75, "61", true), "");
  EXPECT_EQ(scontrol(0, "61", true), "");
}

TEST(SlurmState, IsReadFromScontrol) {
  const auto state = parse_scontrol_job(
      "JobId=2 JobName=j.sh UserId=root(0) JobState=FAILED Reason=NonZeroExitCode "
      "Requeue=1 Restarts=3 BatchFlag=1 ExitCode=75:0 ReqNodeList=(null) NodeList=n[1-2] "
      "Command=/data/x\n");
  ASSERT_TRUE(state);
  EXPECT_EQ(state->state, "FAILED");
  EXPECT_EQ(state->reason, "NonZeroExitCode");
  EXPECT_EQ(state->nodes, "n[1-2]");
  EXPECT_EQ(state->restarts, 3);
  EXPECT_TRUE(state->has_ended());
  EXPECT_EQ(state->result(), 75);
  EXPECT_FALSE(parse_scontrol_job(""));
  EXPECT_FALSE(parse_scontrol_job("slurm_load_jobs error: Invalid job id specified"));
}

TEST(SlurmState, BecomesAnExitCode) {
  const auto result = [](const char* line) { return parse_sacct_job(line).value().result(); };
  EXPECT_EQ(result("COMPLETED|0:0\n"), 0);
  EXPECT_EQ(result("FAILED|2:0\n"), 2);
  EXPECT_EQ(result("CANCELLED by 1000|0:15\n"), 143);
  EXPECT_EQ(result("TIMEOUT|0:0\n"), 75);
  EXPECT_EQ(result("NODE_FAIL|0:0\n"), 75);
  EXPECT_FALSE(parse_sacct_job("RUNNING|0:0").value().has_ended());
  EXPECT_FALSE(parse_sacct_job(""));
}

TEST(CommandOutput, HasBothStreamsAndTheCode) {
  const auto ended = run_command({"bash", "-c", "echo out; echo err >&2; exit 3"});
  ASSERT_TRUE(ended);
  EXPECT_EQ(ended->exit_code, 3);
  EXPECT_EQ(ended->out, "out\n");
  EXPECT_EQ(ended->err, "err\n");
  EXPECT_EQ(run_command({"bash", "-c", "kill -9 $$"})->exit_code, 137);
  EXPECT_EQ(run_command({"bash", "-c", "head -c 300000 /dev/zero"})->out.size(), 300000u);
  EXPECT_FALSE(run_command({"no-such-program-of-weft"}));
}

// With an sbatch that says this and fails; empty: there is none. The message, then the hint.
std::string refusal(const testing::TemporaryFolder& folder, const std::string& words) {
  if (!words.empty()) {
    std::ofstream(folder / "sbatch") << "#!/bin/bash\necho '" << words << "' >&2\nexit 1\n";
    std::filesystem::permissions(folder / "sbatch", std::filesystem::perms::owner_all);
  }
  const std::string path = std::getenv("PATH");
  ::setenv("PATH", (folder.path().string() + (words.empty() ? "" : ":" + path)).c_str(), 1);
  std::string text;
  try {
    submit_slurm_job(folder / "slurm.sh", "#!/bin/bash\n");
  } catch (const UserError& e) {
    text = std::string(e.what()) + "\n" + e.hint();
  }
  ::setenv("PATH", path.c_str(), 1);
  return text;
}

TEST(SlurmJob, WithoutSlurmTheMessageNamesTheScript) {
  const testing::TemporaryFolder folder;
  const std::string text = refusal(folder, "");
  EXPECT_TRUE(has(text, "--engine slurm: sbatch is not on the PATH\n")) << text;
  EXPECT_TRUE(has(text, "run `sbatch " + (folder / "slurm.sh").string() + "`")) << text;
}

TEST(SlurmJob, WhatSbatchSaysKeepsItsLines) {
  const testing::TemporaryFolder folder;
  const std::string text =
      refusal(folder, "sbatch: error: invalid partition: x\nsbatch: error: it failed");
  EXPECT_TRUE(has(text,
                  "slurm.sh:\n  sbatch: error: invalid partition: x\n  sbatch: error: it "
                  "failed\nlaunch.slurm has the options"))
      << text;
  EXPECT_EQ(printable_message(text.substr(0, text.find("\nlaunch"))),
            text.substr(0, text.find("\nlaunch")));
  EXPECT_TRUE(has(refusal(folder,
                          "sbatch: error: resolve_ctls_from_dns_srv: res_nsearch error: "
                          "Unknown host"),
                  "does this machine reach Slurm's controller"));
}

}  // namespace
}  // namespace weft
