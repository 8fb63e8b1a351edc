#!/usr/bin/env python3
"""Two builds of weft in turns on one machine: did a change cost speed or memory?

    compare_builds.py OLD NEW [--turns N] [--steps N] [--bar 0.02] [--out FILE.md]
    compare_builds.py OLD NEW --gpu qwen2.5-0.5b [--bar 0.01]

OLD and NEW are programs. On the CPU they train model S in fp32 and bf16, on one rank with two
threads and on two data-parallel ranks with one; with --gpu they train that model of gpu_workload.py.
Every turn is a fresh process, and OLD and NEW alternate, because a shared machine drifts. The figure
is the median step over all turns without the first ones of each. Exits with 1 where NEW is slower
than OLD by more than the bar, or takes more memory (its arena, to the byte).
"""

import argparse
import json
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

import gpu_bench
import gpu_workload
import workload
from turn import DROPPED, run_turn

PRECISIONS = ("fp32", "bf16")
LAYOUTS = {"one rank": ({"dp": 1}, 2), "dp 2": ({"dp": 2}, 1)}


class Cpu:
    """Model S. A case is (precision, layout)."""

    def __init__(self, args):
        self.args = args
        self.folder = Path(tempfile.mkdtemp(prefix="weft-compare-"))
        self.rows = self.folder / "rows.txt"
        workload.write_config(workload.MODEL_S, self.folder / "model")
        workload.write_rows(workload.MODEL_S, self.rows, args.steps)
        self.cases = [(precision, layout) for layout in LAYOUTS for precision in PRECISIONS]

    def name(self, case):
        return f"model S, {case[0]}, {case[1]}"

    def take_turn(self, weft, case):
        precision, layout = case
        parallel, threads = LAYOUTS[layout]
        run_dir, file = self.folder / "run", self.folder / "run.yaml"
        shutil.rmtree(run_dir, ignore_errors=True)
        file.write_text(workload.run_file(workload.MODEL_S, self.folder / "model", self.rows,
                                          self.args.steps, precision, "random", parallel, threads))
        turn = run_turn([str(weft), "train", str(file), "--run-dir", str(run_dir), "--quiet"],
                        run_dir / "metrics.jsonl", self.folder / "turn.log")
        started = json.loads((run_dir / "events.jsonl").read_text().split("\n")[0])
        return turn.steps_ms[DROPPED:], turn.losses, started["arena_bytes"]


class Gpu:
    """One model of gpu_workload.py."""

    def __init__(self, args):
        self.bench = gpu_bench.Bench(argparse.Namespace(weft=args.old, model=args.gpu,
                                                        steps=args.steps))
        self.cases, self.turn = [args.gpu], 0

    def name(self, case):
        return case

    def take_turn(self, weft, _case):
        self.bench.args.weft, self.turn = weft, self.turn + 1
        got = self.bench.weft(self.turn)
        return ([line["step_ms"] for line in got["lines"][gpu_bench.DROPPED:]],
                [line["loss"] for line in got["lines"]], got["memory"])


def compare(work, args):
    """The table's lines, and whether all bars hold."""
    lines = ["| run | old ms | new ms | new / old | old bytes | new bytes | losses |",
             "|---|---|---|---|---|---|---|"]
    holds = True
    for case in work.cases:
        steps, losses, memory = ({"old": [], "new": []} for _ in range(3))
        for _ in range(args.turns):
            for side, weft in (("old", args.old), ("new", args.new)):
                ms, loss, arena = work.take_turn(weft, case)
                steps[side] += ms
                losses[side].append(loss)
                memory[side].append(arena)
        old, new = (statistics.median(steps[side]) for side in ("old", "new"))
        bytes_old, bytes_new = max(memory["old"]), max(memory["new"])
        same = all(one == losses["old"][0] for side in losses.values() for one in side)
        ok = new <= old * (1 + args.bar) and bytes_new <= bytes_old
        holds = holds and ok
        lines.append(f"| {work.name(case)} | {old:.2f} | {new:.2f} | {new / old:.4f}"
                     f"{'' if ok else ' **over the bar**'} | {bytes_old:,} | {bytes_new:,} | "
                     f"{'same' if same else 'differ'} |")
        print(lines[-1], flush=True)
    return lines, holds


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--gpu", choices=gpu_workload.MODELS)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--bar", type=float, default=0.02)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    args.old, args.new = args.old.resolve(), args.new.resolve()
    lines, holds = compare(Gpu(args) if args.gpu else Cpu(args), args)
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text("\n".join(lines) + "\n")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
