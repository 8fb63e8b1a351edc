#!/usr/bin/env python3
"""A real Slurm of two nodes starts weft: bits, exit codes, signals, requeues and refusals.

    slurm_interop.py --weft build/weft

The same run, exact mode, dp 2 x tp 2 on two nodes: submitted with --engine slurm and followed with --wait; inside an
allocation (salloc); as `srun weft train`. Weights, states and metrics are those of four ranks of one machine. SIGTERM and Slurm's
warning before a time limit save; a job that is preempted or requeued resumes (FULL=1: Slurm waits before it starts such a job again).
"""

import re
import subprocess
import time

from common import Weft, events_of, read_metrics, run_program, write_run_file
from sampling import ROOT, is_full
from slurm_cluster import Cluster, program

FIRST_STEP_S = 3.0
ENV = {"WEFT_NODES_ON_LO": "1"}  # both nodes are this machine
LISTS = {"n1": "n1", "n[01-04,7]": "n01 n02 n03 n04 n7", "n[8-11],login": "n8 n9 n10 n11 login",
         "n[098-101]": "n098 n099 n100 n101", "r[0-1]n[1-2]": "r0n1 r0n2 r1n1 r1n2"}


def write_file(folder, name, steps, **launch):
    return write_run_file(folder / f"{name}.yaml", {
        "name": name, "storage": str(folder / "runs"),
        "model": {"path": str(ROOT / "examples/quickstart/model"), "init": "random"},
        "data": {"train": [str(folder / "data/train.jsonl")], "source": "{question}\n",
                 "target": "{sql}", "tokenizer": "bytes", "seq_length": 96},
        "parallel": {"dp": 2, "tp": 2, "shard": "zero3", "mode": "exact"},
        "train": {"steps": steps, "global_batch": 8, "micro_batch": 4, "lr": 1e-3},
        "checkpoint": {"every": 4, "keep": 100}, "launch": {"threads": 1, "slurm": {"cpus-per-task": "1"}, **launch}})


def same_run(checks, weft, run_dir, own, what):
    checks.equal(weft.call("hash", run_dir), weft.call("hash", own), f"{what}: weights and states")
    keys = ("step", "loss", "grad_norm", "lr", "tokens")
    lines = [[{k: line[k] for k in keys} for line in read_metrics(d)[0]] for d in (run_dir, own)]
    checks.equal(lines[0], lines[1], f"{what}: metrics")


class Case:
    """What every check needs."""

    def __init__(self, checks, weft, folder, cluster):
        self.checks, self.weft, self.folder, self.cluster = checks, weft, folder, cluster

    def train(self, file, *words, before=(), env=None, deadline_s=120):
        """(exit code, standard output, standard error) of `weft train`."""
        done = subprocess.run([*before, str(self.weft.path), "train", str(file), *words], text=True, capture_output=True,
                              stdin=subprocess.DEVNULL, timeout=deadline_s, cwd=self.folder, check=False,
                              env={**self.cluster.env, **ENV, **(env or {})})
        return done.returncode, done.stdout, done.stderr

    def succeeds(self, what, file, *words, **more):
        code, out, err = self.train(file, *words, **more)
        self.checks.that(code == 0, f"{what}: exit 0", "" if code == 0 else out[-800:] + err[-800:])
        return out

    def state(self, job):
        text = self.cluster.call("scontrol", "--oneliner", "show", "job", job)
        return dict(re.findall(r"(\w+)=(\S+)", text))

    def wait_for(self, what, holds, seconds=60):
        deadline = time.monotonic() + seconds
        while not holds():
            if time.monotonic() > deadline:
                raise RuntimeError(f"{what} did not happen in {seconds} s")
            time.sleep(0.02)

    def submit(self, file, *words):
        out = self.succeeds(f"{file.stem}: submitted", file, "--engine", "slurm", *words)
        return re.fullmatch(r"submitted job (\d+)\n", out).group(1)

    def has_steps(self, run_dir, number):
        metrics = run_dir / "metrics.jsonl"
        return metrics.exists() and metrics.read_bytes().count(b"\n") >= number


def check_lists(case):
    for text, names in LISTS.items():
        case.checks.equal(case.cluster.call("scontrol", "show", "hostnames", text).split(), names.split(), f"nodes {text}")


def check_submitted(case, own):
    file = write_file(case.folder, "submitted", 12)
    out = case.succeeds("--engine slurm --wait", file, "--engine", "slurm", "--nodes", "2", "--wait")
    run_dir = case.folder / "runs/submitted"
    case.checks.that("step 12/12" in out, "--wait: shows the job's output")
    same_run(case.checks, case.weft, run_dir, own, "--engine slurm")
    job = re.search(r"submitted job (\d+)", out).group(1)
    state = case.state(job)
    case.checks.equal((state["JobState"], state["ExitCode"]), ("COMPLETED", "0:0"), "the job's own state")
    case.checks.equal(events_of(run_dir, "started")[0].get("slurm_job"), job, "events.jsonl: the job")
    secret = (run_dir / "secret").read_text().strip()
    case.checks.equal((run_dir / "secret").stat().st_mode & 0o777, 0o600, "the secret's mode")
    seen = [path for path in (run_dir / "slurm.sh", run_dir / f"slurm-{job}.log") if secret in path.read_text()]
    case.checks.equal(seen, [], "the secret is in neither script nor log")


def check_inside(case, own):
    file = write_file(case.folder, "inside", 12)
    case.succeeds("salloc", file, "--engine", "slurm", "--nodes", "2", before=[program("salloc"), "-N2", "-n2"])
    same_run(case.checks, case.weft, case.folder / "runs/inside", own, "inside an allocation")
    file = write_file(case.folder, "srun", 12)
    case.succeeds("srun weft train", file, before=[program("srun"), "-N2", "-n2"])
    same_run(case.checks, case.weft, case.folder / "runs/srun", own, "srun weft train")


def check_refusals(case):
    file = write_file(case.folder, "refused", 4)

    def refused(what, wanted, *words, **more):
        code, out, err = case.train(file, *words, **more)
        case.checks.equal(code, 2, f"{what}: exit 2")
        case.checks.that(wanted in err, f"{what}: the message", "" if wanted in err else (out + err)[-600:])

    refused("no sbatch", "sbatch is not on the PATH", "--engine", "slurm", "--nodes", "2", env={"PATH": "/nowhere"})
    refused("a partition that does not exist", "sbatch did not accept", "--engine", "slurm", "--nodes", "2", "--set",
            "launch.slurm={partition: none}")
    refused("an option that is weft's", "launch.slurm: nodes", "--engine", "slurm", "--set", "launch.slurm={nodes: 3}")
    refused("two tasks on a node", "one task per node", before=[program("srun"), "-N1", "-n2", "--overcommit"])
    refused("a layout that task 0 refuses: no agent waits", "parallel.tp", "--set", "parallel.tp=3", deadline_s=30,
            before=[program("srun"), "-N2", "-n2"])
    refused("one task for two nodes", "started alone", "--engine", "slurm", "--nodes", "2", before=[program("srun"), "-N1", "-n1"])
    refused("--wait without Slurm", "--wait is for --engine slurm", "--wait")
    code, out, err = case.train(file, "--engine", "slurm", "--nodes", "2", "--wait", "--set", "data.train=[missing.txt]")
    case.checks.equal(code, 2, "a job that refuses its rows: --wait exits 2" + ("" if code == 2 else (out + err)[-500:]))


def check_missing(case):
    """Of two tasks the second never becomes an agent: its node is named."""
    file = write_file(case.folder, "missing", 4, join_timeout_s=2)
    script = 'test "$SLURM_PROCID" = 0 && exec "$@"; sleep 5'
    code, out, err = case.train(file, before=[program("srun"), "-N2", "-n2", "sh", "-c", script, "sh"])
    case.checks.equal(code, 75, "a task that does not join: exit 75")
    text = out + err
    case.checks.that("(n1 (127.0.0.1" in text and "one is missing (n2)" in text, "a task that does not join: its node is named",
                     "" if "one is missing (n2)" in text else text[-600:])


def check_signals(case):
    file = write_file(case.folder, "cancelled", 100000)
    run_dir = case.folder / "runs/cancelled"
    job = case.submit(file, "--nodes", "2")
    case.wait_for("the job's start", (run_dir / f"slurm-{job}.log").exists)
    begin = time.monotonic()
    case.wait_for("training", lambda: case.has_steps(run_dir, 1))
    took_s = time.monotonic() - begin
    most_s = FIRST_STEP_S if is_full() else FIRST_STEP_S * 10  # beside another program
    case.checks.that(took_s < most_s, f"from the job's start to its first step: {took_s:.1f} s, wanted {most_s:g}")
    case.cluster.call("scancel", "--signal=USR1", job)
    case.wait_for("the job's end", lambda: case.state(job)["JobState"] not in ("RUNNING", "COMPLETING"))
    state = case.state(job)
    case.checks.equal((state["JobState"], state["ExitCode"]), ("FAILED", "138:0"), "SIGUSR1: saved, exit 138")
    step = events_of(run_dir, "stopped")[-1]["step"]
    case.checks.that((run_dir / f"checkpoints/step-{step:08}/COMMITTED").exists(), "SIGUSR1: the last step is saved")


def check_requeue(case):
    file = write_file(case.folder, "requeued", 60)
    own = case.folder / "own-requeued"
    case.weft.train(file, own)
    run_dir = case.folder / "runs/requeued"
    job = case.submit(file, "--nodes", "2", "--overwrite")
    case.wait_for("training", lambda: case.has_steps(run_dir, 2))
    high = case.cluster.call("sbatch", "--parsable", "-p", "high", "-N2", "--exclusive", "-o", "/dev/null", "--wrap", "sleep 1").strip()
    case.wait_for("the preemption", lambda: case.state(high)["JobState"] == "COMPLETED", 90)
    case.wait_for("the job's end", lambda: case.state(job)["JobState"] == "COMPLETED", 240)
    case.checks.equal(int(case.state(job)["Restarts"]), 1, "preempted: requeued once")
    starts = events_of(run_dir, "started")
    case.checks.that(len(starts) == 2 and starts[1]["step"] > 0, "preempted: resumed, though --overwrite was given")
    same_run(case.checks, case.weft, run_dir, own, "preempted")


def body(args, checks, folder):
    weft = Weft(args.weft)
    weft.call("corpus", folder / "data", "--seed", 1, "--train", 400, "--test", 10)
    own = folder / "own"
    weft.train(write_file(folder, "own", 12), own)
    with Cluster(folder / "slurm") as cluster:
        case = Case(checks, weft, folder, cluster)
        check_lists(case)
        check_submitted(case, own)
        check_inside(case, own)
        check_refusals(case)
        check_missing(case)
        check_signals(case)
        if is_full():
            check_requeue(case)


if __name__ == "__main__":
    run_program(__doc__, body, in_memory=True)
