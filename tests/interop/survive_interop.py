#!/usr/bin/env python3
"""kill -9 of ranks at random times: training goes on, and ends with the bits of a calm run.

    survive_interop.py --weft build/weft [--moments 6] [--models quickstart,s] [--steps N] [--seed N]
                       [--device cuda] [--out FILE.md]

The quickstart's model (with FULL=1 also model S of the benchmarks) on four ranks, dp 2 x tp 2 zero3,
in fast and in exact mode, saving and evaluating now and then. One calm run, then one in which a random rank is killed at random times, as
many as --moments (with FULL=1 50 in each mode). From a kill to the first completed step, less one median step:
under 2 s, the median under 1 s. At most launch.snapshot_every steps are repeated. The model, the
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
MOST_S, MEDIAN_S = 2.0, 1.0
TIMES = ("step_ms", "tokens_per_s", "mem_bytes", "time_s", "eval_time_s", "eval_tokens_per_s")


@dataclass
class Outcome:
    """Of one model in one mode; times in ms, but for `began`: seconds from a death to the next step's beginning."""

    model: str
    mode: str
    step: float
    took: list
    began: list
    repeated: int
    is_same: bool

    def row(self):
        median = statistics.median
        return (self.model, self.mode, len(self.took), f"{self.step:.0f} ms", f"{median(self.took):.0f} ms",
                f"{max(self.took):.0f} ms", f"{median(self.began):.2f} s, {max(self.began):.2f} s",
                f"at most {self.repeated}", "the same bits" if self.is_same else "**differ**")


def page(outcomes, device, facts):
    where = "ranks that share one GPU (cuda_ipc)" if device == "cuda" else "ranks"
    return "\n".join([
        "# kill -9 of ranks", "", *(f"- {key}: {value}" for key, value in facts.items()), "",
        f"Four {where}, dp 2 x tp 2 zero3, saving and evaluating now and then; a random rank is killed at random times. From a kill "
        "to the first completed step, less the median step of a calm run; and from the death to the beginning of that step.", "",
        *report.table(["model", "mode", "kills", "median step", "to the next step: median", "most",
                       "to its beginning: median, most", "steps repeated", "model, checkpoints, metrics.jsonl"],
                      [outcome.row() for outcome in outcomes])])


def facts_of(device):
    facts = report.run_facts(ROOT)
    gpu = report.output_of(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]) if device == "cuda" else ""
    return facts | ({"GPU": gpu.splitlines()[0]} if gpu else {})


def model_folder(model, folder):
    if model == "quickstart":
        return ROOT / "examples/quickstart/model"
    write_config(MODEL_S, folder / "model-s")
    return folder / "model-s"


def write_inputs(weft, folder, model, mode, steps, device):
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
        "launch": {"max_restarts": -1, "device": device}})


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


def train_with_kills(weft, file, run_dir, dice, moments):
    """(exit code, seconds of each kill, shared memory and sockets seen, what the program printed)."""
    command = [str(weft.path), "train", str(file), "--run-dir", str(run_dir)]
    log, times, maps, ranks, sockets = run_dir.parent / "log", [], {}, [], Sockets()
    with open(log, "w+b") as out, subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out) as process:
        try:
            wait_until(process, lambda: num_lines(run_dir) > 0)
            while len(times) < moments:
                time.sleep(dice.uniform(0, 1.2))
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


def without_times(run_dir):
    lines = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if k not in TIMES} for line in lines]


def hashes(weft, run_dir):
    names = sorted(path.name for path in (run_dir / "checkpoints").iterdir())
    return {name: weft.call("hash", run_dir / "checkpoints" / name) for name in names} | {
        "final": weft.call("hash", run_dir / "final")}


def check_mode(model, mode, checks, weft, folder, dice, args):
    # Steps of model S take over a second on two cores.
    steps = args.steps or (60 + 12 * args.moments if model == "quickstart" else 10 + 3 * args.moments)
    file = write_inputs(weft, folder, model, mode, steps, args.device)
    calm, hit = folder / f"{model}-{mode}-calm", folder / f"{model}-{mode}-hit"
    if args.device == "cuda":
        weft.train(file, folder / f"{model}-{mode}-first", "--set", "train.steps=61")
    weft.train(file, calm)
    step_s = statistics.median(line["step_ms"] for line in read_metrics(calm)[0]) / 1000
    code, times, (maps, sockets), text = train_with_kills(weft, file, hit, dice, args.moments)
    what = f"{model}, {mode}, {len(times)} kills"
    checks.equal(code, 0, f"{what}: the run ends well" + (text[-800:] if code else ""))
    left = left_behind(file, maps, folder, sockets)
    if drivers := [name for name in left if "/dev/shm/cuda.shm" in name]:
        print(f"{what}: {len(drivers)} files of CUDA's driver for killed processes are left, as {drivers[0]}")
    checks.equal([name for name in left if name not in drivers], [], f"{what}: nothing is left")
    is_same = checks.equal(without_times(hit), without_times(calm), f"{what}: metrics.jsonl")
    is_same &= checks.equal(hashes(weft, hit), hashes(weft, calm), f"{what}: model and checkpoints")
    events = events_of(hit, "recovered")
    lost = [event["lost_steps"] for event in events]
    every = max((event["snapshot_every"] for event in events), default=1)
    checks.that(max(lost, default=0) <= every, f"{what}: steps repeated",
                f"at most {max(lost, default=0)}, a snapshot every {every}")
    checks.that(len(times) >= args.moments // 2, f"{what}: enough of them")
    took = sorted(max(0.0, s - step_s) for s in times) or [99.0]
    print(f"{what}: step {1000 * step_s:.0f} ms; to the next step less one: median "
          f"{1000 * statistics.median(took):.0f} ms, most {1000 * took[-1]:.0f} ms")
    seconds = sorted(event["seconds"] for event in events) or [99.0]
    print(f"{what}: from the death to the first step's beginning: median "
          f"{statistics.median(seconds):.2f} s, most {seconds[-1]:.2f} s")
    checks.that(statistics.median(took) < MEDIAN_S, f"{what}: median under {MEDIAN_S:g} s")
    checks.that(took[-1] < MOST_S, f"{what}: each under {MOST_S:g} s", f"{took[-1]:.2f} s")
    return Outcome(model, mode, 1000 * step_s, [1000 * s for s in took], seconds, max(lost, default=0), is_same)


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
    facts, outcomes = facts_of(args.device), []
    for model, mode in itertools.product(args.models.split(","), args.modes.split(",")):
        outcomes.append(check_mode(model, mode, checks, weft, folder, dice, args))
        if args.out:  # also where the time ends before the next one
            args.out.write_text(page(outcomes, args.device, facts))


def add_arguments(parser):
    parser.add_argument("--moments", type=int, default=50 if is_full() else 6)
    parser.add_argument("--steps", type=int, default=0, help="0: enough for the moments")
    parser.add_argument("--models", default="quickstart,s" if is_full() else "quickstart")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--modes", default="fast,exact")
    parser.add_argument("--out", type=Path, help="a page with the figures")
    parser.add_argument("--seed", type=int, default=datetime.date.today().toordinal())


if __name__ == "__main__":
    run_program(__doc__, body, add_arguments, in_memory=True)
