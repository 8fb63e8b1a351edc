#!/usr/bin/env python3
"""What snapshots in memory (launch.snapshot_every) cost the steps of a full-size model.

    snapshot_table.py --weft build-gpu/weft [--model qwen2.5-0.5b] [--device cuda] [--dp 2]
                      [--shard zero1] [--every 0,auto,1,2,5,10] [--turns 2] [--steps 40] [--out FILE.md]

bf16 with fp32 masters, ranks that share one GPU where the device is cuda. Each setting trains from
the same start, in turns. The figure is the mean step after the first 15 (which pin memory, and in which
`auto` finds its number): a mean, since only some steps have a copy. `--model s --device cpu` is for
a machine without a GPU, `--model tiny` for trying out the program. Where `auto` costs more than it promises
the exit code is 1.
"""

import argparse
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import gpu_workload
import workload
from gpu_bench import run_until
from report import list_of, run_facts

DROPPED = 15
MOST = 0.02  # what `auto` may cost
TINY = gpu_workload.GpuModel("tiny", {
    **gpu_workload.QWEN_05B, "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2,
    "num_attention_heads": 4, "vocab_size": 8192}, 8, 64, 0, 0)
MODEL_S = gpu_workload.GpuModel("s", workload.config_json(workload.MODEL_S), workload.MODEL_S.batch,
                                workload.MODEL_S.seq_length, 0, 0)
MODELS = {"tiny": TINY, "s": MODEL_S, **gpu_workload.MODELS}


class Table:
    def __init__(self, args):
        self.args = args
        self.model = MODELS[args.model]
        self.folder = Path(tempfile.mkdtemp(prefix="weft-snapshots-"))
        self.rows = self.folder / "rows.txt"
        gpu_workload.write_folder(self.model, self.folder / "model")
        gpu_workload.write_rows(self.model, self.rows, args.steps + 5)

    def run(self, every):
        """(step_ms of each step, what it copies per rank and how often)"""
        args, out, run = self.args, self.folder / "run", self.folder / "run.yaml"
        run.write_text(gpu_workload.run_file(
            self.model, self.folder / "model", self.rows, args.steps + 5, "random",
            parallel__dp=args.dp, parallel__shard=args.shard, train__master_weights=True,
            train__micro_batch=self.model.batch // args.dp, launch__device=args.device,
            launch__snapshot_every=every))
        log = self.folder / f"log-{every}"
        lines, _ = run_until([args.weft, "train", run, "--run-dir", out], out / "metrics.jsonl",
                             args.steps, log)
        chosen = [line for line in log.read_text(errors="replace").splitlines()
                  if "a snapshot in memory every" in line]
        shutil.rmtree(out)
        return [line["step_ms"] for line in lines[DROPPED:]], chosen[-1:] or [""]

    def state_bytes(self):
        """Of rank 0: without snapshots there is one copy, for checkpoints."""
        plan = self.weft_json("plan", self.folder / "run.yaml", "--set", "launch.snapshot_every=0")
        return plan["snapshot"]

    def weft_json(self, *words):
        return json.loads(subprocess.run([self.args.weft, *words, "--json"], check=True,
                                         capture_output=True, text=True).stdout)


def page(table, facts, steps, chosen, size):
    args = table.args
    base = statistics.fmean(steps["0"]) if "0" in steps else None
    text = [f"# What snapshots cost: {table.model.name} on {args.device}", "", *list_of(facts), "",
            f"bf16, masters in fp32, dp {args.dp} {args.shard}, batch {table.model.batch} x "
            f"{table.model.seq}; a rank copies {size / 1e9:.2f} GB.", "",
            "| `launch.snapshot_every` | mean step | longest | more than without |", "|---|---|---|---|"]
    for every, times in steps.items():
        mean = statistics.fmean(times)
        more = f"{100 * (mean / base - 1):.1f} %" if base else ""
        word = f" ({chosen[every].split('every ')[-1]})" if every == "auto" and chosen[every] else ""
        text.append(f"| {every}{word} | {mean:.1f} ms | {max(times):.1f} ms | {more} |")
    return "\n".join(text) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--weft", type=Path, required=True)
    parser.add_argument("--model", default="qwen2.5-0.5b", choices=MODELS)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--dp", type=int, default=2)
    parser.add_argument("--shard", default="zero1")
    parser.add_argument("--every", default="0,auto,1,2,5,10")
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    args.weft = args.weft.resolve()
    if args.device == "cuda":
        os.environ["WEFT_COMM"] = "cuda_ipc"
    settings = args.every.split(",")
    steps, chosen = {every: [] for every in settings}, {}
    facts = run_facts(Path(__file__).resolve().parents[1], args.device)
    table = Table(args)
    try:
        table.run(settings[0])  # libraries choose their algorithms, and keep the choice
        for _ in range(args.turns):
            for every in settings:
                times, (chosen[every],) = table.run(every)
                steps[every] += times
                print(f"{every}: mean {statistics.fmean(times):.1f} ms {chosen[every]}", flush=True)
        text = page(table, facts, steps, chosen, table.state_bytes())
    finally:
        shutil.rmtree(table.folder)
    print(text)
    if args.out:
        args.out.write_text(text)
    means = {every: statistics.fmean(times) for every, times in steps.items()}
    if not means.get("auto", 0) <= (1 + MOST) * means.get("0", math.inf):
        sys.exit(f"snapshot_table: `auto` costs more than {MOST:.0%}")


if __name__ == "__main__":
    main()
