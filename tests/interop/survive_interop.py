#!/usr/bin/env python3
"""kill -9 of ranks at random times: training goes on, and ends with the bits of a calm run.

    survive_interop.py --weft build/weft [--moments 6] [--models quickstart,s] [--steps N] [--seed N]
                       [--snapshot-every auto] [--device cuda] [--out FILE.md]

The quickstart's model (with FULL=1 also model S of the benchmarks) on four ranks, dp 2 x tp 2 zero3,
in fast and in exact mode, saving and evaluating now and then. One calm run, then one in which a random rank is killed at random times, as
many as --moments (with FULL=1 50 in each mode). From a kill to the first completed step, less one median step:
under 2 s, the median under 1 s. After each kill at most as many steps are repeated as were between
snapshots then (launch.snapshot_every: auto, on a CPU 1 for models as small as these; there once more with 5). The model, the
checkpoints and metrics.jsonl are those of the calm run, and nothing is left behind. Before that: from
the start of the four ranks to their first completed step, under 1.5 s.

With --device cuda the ranks share one GPU (WEFT_COMM=cuda_ipc). A new process then begins with a CUDA
context and its libraries. A first run chooses the algorithms of products, which later ones read from
the cache: in fast mode bits depend on them. --out writes a page for benchmarks/results.
"""

import datetime
import itertools
import json
import os
import random
import re
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from common import Weft, events_of, read_metrics, run_program, write_run_file
from exposure import Sockets
from kill_interop import children_of, end_process, is_ours, left_behind, shared_maps
from sampling import ROOT, is_full

sys.path.insert(0, str(ROOT / "benchmarks"))
import report
from workload import MODEL_S, write_config

RANKS, DEADLINE_S = 4, 900
STARTS, START_S = 5, 1.5
LONGEST_S = 1.2  # between two kills
MOST_S, MEDIAN_S = 2.0, 1.0
SELDOM = "5"  # steps between snapshots, so that steps are lost
TIMES = ("step_ms", "tokens_per_s", "mem_bytes", "time_s", "eval_time_s", "eval_tokens_per_s")


@dataclass
class Outcome:
    """Of one model in one mode; times in ms, but for `began`: seconds from a death to the next step's beginning."""

    model: str
    mode: str
    step: float
    took: list
    began: list
    every: list  # steps between snapshots when each rank died
    repeated: int
    is_same: bool

    def row(self):
        median = statistics.median
        return (self.model, self.mode, len(self.took), f"{self.step:.0f} ms", f"{median(self.took):.0f} ms",
                f"{max(self.took):.0f} ms", f"{median(self.began):.2f} s, {max(self.began):.2f} s",
                " to ".join(map(str, sorted({min(self.every), max(self.every)}))),
                f"at most {self.repeated}", "the same bits" if self.is_same else "**differ**")


def page(outcomes, device, facts):
    where = "ranks that share one GPU (cuda_ipc)" if device == "cuda" else "ranks"
    return "\n".join([
        "# kill -9 of ranks", "", *report.list_of(facts), "",
        f"Four {where}, dp 2 x tp 2 zero3, saving and evaluating now and then; a random rank is killed at random times. From a kill "
        "to the first completed step, less the median step of a calm run; and from the death to the beginning of that step.", "",
        *report.table(["model", "mode", "kills", "median step", "to the next step: median", "most",
                       "to its beginning: median, most", "a snapshot every ... steps", "steps repeated", "model, checkpoints, metrics.jsonl"],
                      [outcome.row() for outcome in outcomes])])


def model_folder(model, folder):
    if model == "quickstart":
        return ROOT / "examples/quickstart/model"
    write_config(MODEL_S, folder / "model-s")
    return folder / "model-s"


def write_inputs(weft, folder, model, mode, steps, device, snapshot_every="auto"):
    weft.call("corpus", folder / "data", "--seed", 1, "--train", 5600, "--test", 40)
    return write_run_file(folder / f"{model}-{mode}.yaml", {
        "name": "run",
        "model": {"path": str(model_folder(model, folder)), "init": "random"},
        "data": {"train": [str(folder / "data/train.jsonl")],
                 "eval": [str(folder / "data/test.jsonl")], "source": "{question}\n",
                 "target": "{sql}", "tokenizer": "bytes", "seq_length": 96},
        "parallel": {"dp": 2, "tp": 2, "shard": "zero3", "mode": mode},
        "train": {"steps": steps, "global_batch": 8, "micro_batch": 4, "lr": 1e-3,
                  "eval_every": 60},
        "checkpoint": {"every": 25, "keep": 100},
        "launch": {"max_restarts": -1, "device": device, "snapshot_every": snapshot_every}})


def num_lines(run_dir):
    try:
        return (run_dir / "metrics.jsonl").read_bytes().count(b"\n")
    except OSError:
        return 0


def wait_until(process, holds):
    deadline = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < deadline:
        if holds():
            return True
        time.sleep(0.002)
    return False


def kill_one(process, run_dir, dice):
    """Kills a random rank; the seconds until a step is complete again, or None at the run's end."""
    before = len(events_of(run_dir, "recovered"))
    ranks = children_of(process.pid)
    if process.poll() is not None or not ranks:
        return None
    end_process(dice.choice(ranks))
    begin = time.monotonic()
    if not wait_until(process, lambda: len(events_of(run_dir, "recovered")) > before):
        return None
    lines = num_lines(run_dir)
    if not wait_until(process, lambda: num_lines(run_dir) > lines):
        return None
    return time.monotonic() - begin


def wait_some_time(process, run_dir, dice, last_line, step_s):
    """At random, but at most until that line of metrics: the next kills need steps too."""
    left_s = max(0, last_line - num_lines(run_dir)) * step_s
    end = time.monotonic() + dice.uniform(0, min(LONGEST_S, left_s))
    wait_until(process, lambda: time.monotonic() >= end or num_lines(run_dir) >= last_line)


def train_with_kills(weft, file, run_dir, dice, moments, calm):
    """(exit code, seconds of each kill, shared memory and sockets seen, what the program printed)."""
    step_s, lines = median_step_s(calm), num_lines(calm)
    command = [str(weft.path), "train", str(file), "--run-dir", str(run_dir)]
    log, times, maps, ranks, sockets = run_dir.parent / "log", [], {}, [], Sockets()
    with open(log, "w+b") as out, subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out) as process:
        try:
            wait_until(process, lambda: num_lines(run_dir) > 0)
            while len(times) < moments:
                wait_some_time(process, run_dir, dice, (len(times) + 1) * lines // (moments + 1), step_s)
                ranks = children_of(process.pid)
                maps.update(shared_maps(ranks, run_dir))
                sockets.look([process.pid, *ranks])
                took_s = kill_one(process, run_dir, dice)
                if took_s is None:
                    break
                times.append(took_s)
            code = process.wait(DEADLINE_S)
        finally:
            for pid in [process.pid, *children_of(process.pid), *ranks]:
                if is_ours(pid, file):
                    end_process(pid)
    return code, times, (maps, sockets), log.read_text(errors="replace")


def intervals_of(text, events, first):
    """Steps between snapshots when each rank died, from what the program printed.

    Events have the interval with which a run goes on: where `auto` had chosen one, but no snapshot was
    taken since, it is chosen again.
    """
    found, every = [], first
    for match in re.finditer(r"a snapshot in memory every (?:(\d+) steps|step)|continuing from step \d+ after", text):
        if match[0].startswith("a snapshot"):
            every = int(match[1] or 1)
        else:
            found.append(every)
            every = events[min(len(found), len(events)) - 1]["snapshot_every"]
    return found


def median_step_s(run_dir):
    return statistics.median(line["step_ms"] for line in read_metrics(run_dir)[0]) / 1000


def without_times(run_dir):
    lines = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if k not in TIMES} for line in lines]


def hashes(weft, run_dir):
    names = sorted(path.name for path in (run_dir / "checkpoints").iterdir())
    return {name: weft.call("hash", run_dir / "checkpoints" / name) for name in names} | {
        "final": weft.call("hash", run_dir / "final")}


def check_mode(model, mode, snapshot_every, checks, weft, folder, dice, args):
    # Steps of model S take over a second on two cores.
    steps = args.steps or (60 + 12 * args.moments if model == "quickstart" else 10 + 3 * args.moments)
    file = write_inputs(weft, folder, model, mode, steps, args.device, snapshot_every)
    calm, hit = (folder / f"{model}-{mode}-{snapshot_every}-{name}" for name in ("calm", "hit"))
    if args.device == "cuda":
        weft.train(file, folder / f"{model}-{mode}-{snapshot_every}-first", "--set", "train.steps=61")
    weft.train(file, calm)
    step_s = median_step_s(calm)
    code, times, (maps, sockets), text = train_with_kills(weft, file, hit, dice, args.moments, calm)
    what = f"{model}, {mode}, snapshots {snapshot_every}, {len(times)} kills"
    checks.equal(code, 0, f"{what}: the run ends well" + (text[-800:] if code else ""))
    left = left_behind(file, maps, folder, sockets)
    if drivers := [name for name in left if "/dev/shm/cuda.shm" in name]:
        print(f"{what}: {len(drivers)} files of CUDA's driver for killed processes are left, as {drivers[0]}")
    checks.equal([name for name in left if name not in drivers], [], f"{what}: nothing is left")
    is_same = checks.equal(without_times(hit), without_times(calm), f"{what}: metrics.jsonl")
    is_same &= checks.equal(hashes(weft, hit), hashes(weft, calm), f"{what}: model and checkpoints")
    events = events_of(hit, "recovered")
    lost = [event["lost_steps"] for event in events]
    is_auto = snapshot_every == "auto"
    every = intervals_of(text, events, int(snapshot_every) if not is_auto else 2 if args.device == "cuda" else 1)
    if checks.equal(len(every), len(lost), f"{what}: each recovery was printed"):
        pairs = sorted(set(zip(lost, every)))
        checks.that(all(steps <= most for steps, most in pairs), f"{what}: at most as many steps repeated as are between snapshots",
                    f"(repeated, between snapshots): {pairs}")
        if not is_auto:
            checks.that(max(lost, default=0) > 0, f"{what}: steps are lost", f"{lost}")
    checks.equal(len(times), args.moments, f"{what}: all of them")
    took = sorted(max(0.0, s - step_s) for s in times) or [99.0]
    print(f"{what}: step {1000 * step_s:.0f} ms; to the next step less one: median "
          f"{1000 * statistics.median(took):.0f} ms, most {1000 * took[-1]:.0f} ms")
    seconds = sorted(event["seconds"] for event in events) or [99.0]
    print(f"{what}: from the death to the first step's beginning: median "
          f"{statistics.median(seconds):.2f} s, most {seconds[-1]:.2f} s")
    checks.that(statistics.median(took) < MEDIAN_S, f"{what}: median under {MEDIAN_S:g} s")
    checks.that(took[-1] < MOST_S, f"{what}: each under {MOST_S:g} s", f"{took[-1]:.2f} s")
    return Outcome(model, mode, 1000 * step_s, [1000 * s for s in took], seconds, every or [0], max(lost, default=0), is_same)


def first_step_s(weft, file, run_dir):
    """Seconds from the program's start to the first line of metrics; then it is ended."""
    begin = time.monotonic()
    with subprocess.Popen([str(weft.path), "train", str(file), "--run-dir", str(run_dir), "--quiet"],
                          stdin=subprocess.DEVNULL) as process:
        is_there = wait_until(process, lambda: num_lines(run_dir) > 0)
        seconds = time.monotonic() - begin
        end_process(process.pid)  # its ranks die with it
    return seconds if is_there else 99.0


def check_start(checks, weft, folder):
    file = write_inputs(weft, folder, "quickstart", "fast", 1000, "cpu")
    times = sorted(first_step_s(weft, file, folder / f"start{i}") for i in range(STARTS))
    checks.that(times[STARTS // 2] < START_S, f"start to first step of {RANKS} ranks: median under {START_S:g} s",
                ", ".join(f"{seconds:.2f}" for seconds in times))


def body(args, checks, folder):
    print(f"seed {args.seed}")
    dice = random.Random(args.seed)
    if args.device == "cuda":
        os.environ["WEFT_COMM"] = "cuda_ipc"
    weft = Weft(args.weft, DEADLINE_S)
    if args.device == "cpu":
        check_start(checks, weft, folder)
    facts, outcomes = report.run_facts(ROOT, args.device), []
    cases = [(*case, args.snapshot_every) for case in itertools.product(args.models.split(","), args.modes.split(","))]
    if args.snapshot_every == "auto" and args.device == "cpu":  # tools/gpu.sh has no time for a third run
        cases.append((*cases[0][:2], SELDOM))
    for case in cases:
        outcomes.append(check_mode(*case, checks, weft, folder, dice, args))
        if args.out:  # also where the time ends before the next one
            args.out.write_text(page(outcomes, args.device, facts))


def add_arguments(parser):
    parser.add_argument("--moments", type=int, default=50 if is_full() else 6)
    parser.add_argument("--steps", type=int, default=0, help="0: enough for the moments")
    parser.add_argument("--models", default="quickstart,s" if is_full() else "quickstart")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--modes", default="fast,exact")
    parser.add_argument("--snapshot-every", default="auto", help="auto, or a number of steps")
    parser.add_argument("--out", type=Path, help="a page with the figures")
    parser.add_argument("--seed", type=int, default=datetime.date.today().toordinal())


if __name__ == "__main__":
    run_program(__doc__, body, add_arguments, in_memory=True)
