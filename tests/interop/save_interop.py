#!/usr/bin/env python3
"""kill -9 of everything while checkpoints are written beside training: nothing is lost.

    save_interop.py --weft build/weft [--seed N]

A run saves at every second step, in the background. All its processes are killed at a random time; then it
is started again in another layout, and again, until it is finished. Every start must find a whole
checkpoint, the last that was committed, and the end has the bits (exact mode) of a run that was never
disturbed. 50 kills with FULL=1, else 15. Some of them must have left a save half written, or the
program has not shown what it is for.
"""

import datetime
import json
import random
import subprocess
import time

from common import Weft, run_program, write_run_file
from exact_interop import texts_of
from kill_interop import CONFIG, children_of, end_process
from sampling import is_full

CHAIN, STEPS, DEADLINE_S = 5, 60, 60.0  # kills of one run
LAYOUTS = ([], ["parallel.dp=2", "parallel.shard=zero3"], ["parallel.tp=2"], ["parallel.dp=2"],
           ["parallel.dp=2", "parallel.tp=2", "parallel.shard=zero1"])


def write_inputs(folder):
    dice = random.Random(4)
    (folder / "model").mkdir()
    # 4 million parameters: a save takes as long as a step.
    config = {**CONFIG, "hidden_size": 128, "intermediate_size": 256, "vocab_size": 12000}
    (folder / "model" / "config.json").write_text(json.dumps(config))
    lines = ["".join(dice.choices("abcdefgh ", k=dice.randint(2, 40))) for _ in range(64)]
    (folder / "rows.txt").write_text("\n".join(lines) + "\n")
    return write_run_file(folder / "run.yaml", {
        "name": "run", "model": {"path": str(folder / "model"), "init": "random"},
        "data": {"train": [str(folder / "rows.txt")], "tokenizer": "bytes", "seq_length": 32},
        "parallel": {"mode": "exact", "exact_dp": 2, "exact_tp": 2},
        "train": {"steps": STEPS, "global_batch": 4, "micro_batch": 2, "clip_norm": 1.0},
        "checkpoint": {"every": 2, "keep": 2, "async": True}, "launch": {"threads": 1}})


def committed_step(run_dir):
    """Of the newest checkpoint; 0 where there is none."""
    return max((int(path.parent.name[5:]) for path in run_dir.glob("checkpoints/step-*/COMMITTED")
                if path.parent.name[5:].isdigit()), default=0)


def events_of(run_dir, name):
    path = run_dir / "events.jsonl"
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    return [event for event in map(json.loads, lines) if event["event"] == name]


def kill_all(process):
    """The supervisor first, so that it cannot report the others."""
    ranks = children_of(process.pid)
    for pid in [process.pid, *ranks]:
        end_process(pid)
    process.wait()


class Chain:
    """One run directory, killed again and again."""

    def __init__(self, args, folder, file, dice):
        self.args, self.folder, self.file, self.dice = args, folder, file, dice
        self.num_torn = 0

    def words(self, layout):
        return [word for item in layout for word in ("--set", item)]

    def kill_once(self, checks, number):
        layout = self.dice.choice(LAYOUTS)
        before, starts = committed_step(self.folder), len(events_of(self.folder, "started"))
        command = [str(self.args.weft.resolve()), "train", str(self.file), "--run-dir", str(self.folder), "--quiet",
                   *self.words(layout)]
        with open(self.folder.with_suffix(".log"), "w+b") as log, subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log) as process:
            steps = self.wait_for_steps(process, starts)
            wait_s = self.dice.uniform(0, 0.04)
            time.sleep(wait_s)
            is_over = process.poll() is not None
            kill_all(process)
        started = events_of(self.folder, "started")[starts:]
        text = self.folder.with_suffix(".log").read_text(errors="replace")
        at = started[0]["step"] if started else None
        what = f"kill {number}, {' '.join(layout) or '1 rank'}, after {steps} steps and {wait_s:.3f} s"
        checks.that(at == before and not is_over, f"{what}: it had started from the last checkpoint",
                    f"step {at}, committed {before}: {text[-500:]}")
        self.num_torn += any(self.folder.glob("checkpoints/*.writing"))

    def wait_for_steps(self, process, starts):
        """For a random number of steps of this start, or its end."""
        wanted = self.dice.randrange(8)
        deadline = time.monotonic() + DEADLINE_S
        before = None  # lines that this start found, or left
        while process.poll() is None and time.monotonic() < deadline:
            if len(events_of(self.folder, "started")) > starts:
                lines = len(texts_of(self.folder, "loss"))
                before = lines if before is None else before
                if lines - before >= wanted:
                    break
            time.sleep(0.002)
        return wanted


def body(args, checks, folder):
    print(f"seed {args.seed}")
    dice = random.Random(args.seed)
    weft = Weft(args.weft)
    file = write_inputs(folder)
    whole = folder / "whole"
    weft.call("train", file, "--run-dir", whole, "--quiet")
    num_torn = 0
    for i in range(10 if is_full() else 3):
        chain = Chain(args, folder / f"chain-{i}", file, dice)
        for k in range(CHAIN):
            chain.kill_once(checks, CHAIN * i + k)
        num_torn += chain.num_torn
        weft.call("train", file, "--run-dir", chain.folder, "--quiet")
        checks.equal(weft.call("hash", chain.folder), weft.call("hash", whole),
                     f"run {i}: the bits of an undisturbed one")
        checks.equal(texts_of(chain.folder, "loss"), texts_of(whole, "loss"),
                     f"run {i}: every loss once, the same text")
        checks.equal(events_of(chain.folder, "damaged"), [], f"run {i}: nothing was damaged")
    print(f"kills inside a save: {num_torn}")
    checks.that(num_torn > 0, "some kills left a save half written")


def add_arguments(parser):
    parser.add_argument("--seed", type=int, default=datetime.date.today().toordinal())


if __name__ == "__main__":
    run_program(__doc__, body, add_arguments)
